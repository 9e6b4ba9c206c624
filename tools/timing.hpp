// How long something takes.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace lowbit::tools {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <class Body>
double time_once(const Body& body) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    return seconds_since(begin);
}

struct Timing {
    double median = 0, best = 0;  // seconds
    int runs = 0;
};

struct TimingOptions {
    double seconds = 0.3;  // of measured runs, at least
    int least_runs = 3;
    int most_runs = 10'000;
};

// One run to warm up, then runs until both bounds are met.
template <class Body>
Timing time_runs(const TimingOptions& options, const Body& body) {
    body();
    std::vector<double> times;
    double total = 0;
    while (int(times.size()) < options.most_runs && (total < options.seconds || int(times.size()) < options.least_runs)) {
        times.push_back(time_once(body));
        total += times.back();
    }
    std::ranges::sort(times);
    const size_t middle = times.size() / 2;
    const double median = times.size() % 2 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
    return {median, times.front(), int(times.size())};
}

}  // namespace lowbit::tools
