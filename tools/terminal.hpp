// What only a person at a terminal gets: colour and a progress bar.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace lowbit::tools {

enum class Style { plain, bold, dim, good, fair, poor };

// The text as it is, unless stdout is a terminal and NO_COLOR is unset.
std::string styled(const std::string& text, Style style);

// One line on stderr that is rewritten in place and erased at the end; nothing where stderr is no terminal.
class ProgressBar {
public:
    ProgressBar(std::string title, int64_t total);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // `what` is being worked on now; `done` of the total lies behind.
    void show(int64_t done, const std::string& what);

private:
    std::string title_;
    int64_t total_;
    bool is_shown_;
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace lowbit::tools
