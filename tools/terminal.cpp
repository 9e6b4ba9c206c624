#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "text.hpp"

namespace lowbit::tools {
namespace {

constexpr const char* erase_line = "\r\x1b[K";

bool has_colour() {
    static const bool answer = [] {
        const char* forbidden = std::getenv("NO_COLOR");
        return ::isatty(STDOUT_FILENO) && !(forbidden && *forbidden);
    }();
    return answer;
}

const char* code(Style style) {
    switch (style) {
    case Style::plain: return "";
    case Style::bold: return "\x1b[1m";
    case Style::dim: return "\x1b[2m";
    case Style::good: return "\x1b[32m";
    case Style::fair: return "\x1b[33m";
    case Style::poor: return "\x1b[31m";
    }
    return "";
}

size_t columns_of_stderr() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string styled(const std::string& text, Style style) {
    return style == Style::plain || text.empty() || !has_colour() ? text : code(style) + text + "\x1b[0m";
}

ProgressBar::ProgressBar(std::string title, int64_t total)
    : title_(std::move(title)), total_(std::max<int64_t>(total, 1)), is_shown_(::isatty(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
    if (is_shown_) std::fputs(erase_line, stderr);
}

void ProgressBar::show(int64_t done, const std::string& what) {
    if (!is_shown_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    constexpr int64_t cells = 30;
    const int64_t full = std::clamp<int64_t>(cells * done / total_, 0, cells);
    std::string bar;
    for (int64_t i = 0; i < cells; ++i) bar += i < full ? "█" : "░";
    const std::string front = title_ + "  " + bar + "  " + std::to_string(100 * done / total_) + " %  ";
    const size_t room = columns_of_stderr() - std::min(columns_of_stderr(), text_width(front) + 1);
    std::fprintf(stderr, "%s%s%s", erase_line, front.c_str(), shortened(without_controls(what), std::max<size_t>(room, 3)).c_str());
    std::fflush(stderr);
}

}  // namespace lowbit::tools
