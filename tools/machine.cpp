#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>

#include "core/status.hpp"
#include "core/threads.hpp"
#include "cpu/features.hpp"
#include "cpu/isa.hpp"
#include "matrix.hpp"
#include "timing.hpp"

namespace lowbit::tools {
namespace {

// "32K", "266240K", "32M"
int64_t parse_cache_size(const std::string& text) {
    const int64_t number = std::atoll(text.c_str());
    return text.ends_with('K') ? number << 10 : text.ends_with('M') ? number << 20 : number;
}

double measure_reading(core::ThreadPool& pool, const cpu::Isa& isa, double seconds) {
    constexpr int64_t piece = 4 << 20;
    constexpr int64_t least = int64_t(1) << 30;
    const int64_t pieces = std::max(least, 2 * last_level_cache_bytes()) / piece;
    // Every page is written first: pages that were never touched are all one page of zeros.
    const auto memory = std::make_unique_for_overwrite<float[]>(size_t(pieces * piece) / sizeof(float));
    pool.run(pieces, [&](int64_t i) { std::fill_n(memory.get() + i * (piece / 4), piece / 4, float(i)); });
    std::atomic<uint64_t> sink{0};
    const auto read_all = [&] { pool.run(pieces, [&](int64_t i) { sink += isa.read(memory.get() + i * (piece / 4), piece); }); };
    return double(pieces * piece) / time_runs({.seconds = seconds, .least_runs = 5}, read_all).best;
}

double measure_integers(core::ThreadPool& pool, const cpu::Isa& isa, double seconds) {
    int64_t rounds = 1000;
    while (time_once([&] { isa.integer_peak(rounds); }) < 5e-3) rounds *= 2;
    std::atomic<int64_t> operations{0};
    const auto all_threads = [&] {
        operations = 0;
        pool.run(pool.threads(), [&](int64_t) { operations += isa.integer_peak(rounds); });
    };
    const double best = time_runs({.seconds = seconds, .least_runs = 5}, all_threads).best;
    return double(operations.load()) / best;
}

}  // namespace

std::vector<const cpu::Isa*> available_isas() {
    std::vector<const cpu::Isa*> isas;
#ifdef __x86_64__
    if (cpu::features().amx) isas.push_back(&cpu::amx_isa());
    if (cpu::features().avx512) isas.push_back(&cpu::avx512_isa());
    if (cpu::features().avx2) isas.push_back(&cpu::avx2_isa());
#endif
    isas.push_back(&cpu::portable_isa());
    return isas;
}

std::string processor_name() { return cpu::features().processor; }

int64_t last_level_cache_bytes() {
    for (int index = 3; index >= 0; --index) {
        std::ifstream file(core::join("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
        std::string text;
        if (file >> text && parse_cache_size(text) > 0) return parse_cache_size(text);
    }
    return int64_t(32) << 20;
}

double Ceilings::integer_operations_per_second() const {
    double most = 0;
    for (const IntegerPeak& peak : integer) most = std::max(most, peak.operations_per_second);
    return most;
}

Ceilings measure_ceilings(int threads, double seconds) {
    core::ThreadPool pool(threads);
    Ceilings ceilings{.threads = threads, .read_bytes_per_second = measure_reading(pool, *available_isas().front(), seconds)};
    for (const cpu::Isa* isa : available_isas()) ceilings.integer.push_back({isa->name, measure_integers(pool, *isa, seconds / 2)});
    return ceilings;
}

Ceilings improved(const Ceilings& ceilings, double seconds) {
    Ceilings best = measure_ceilings(ceilings.threads, seconds);
    best.read_bytes_per_second = std::max(best.read_bytes_per_second, ceilings.read_bytes_per_second);
    for (size_t i = 0; i < best.integer.size(); ++i) {
        double& rate = best.integer[i].operations_per_second;
        rate = std::max(rate, ceilings.integer[i].operations_per_second);
    }
    return best;
}

}  // namespace lowbit::tools
