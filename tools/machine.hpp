// This machine: what it is, and what it can do at best.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lowbit::cpu {
struct Isa;
}

namespace lowbit::tools {

// The instruction sets that run here, widest first.
std::vector<const cpu::Isa*> available_isas();

std::string processor_name();
int64_t last_level_cache_bytes();  // 32 MB where the system does not say

struct IntegerPeak {
    std::string isa;
    double operations_per_second = 0;  // 2 per multiply-add
};

// The best of several runs, all threads at once: no kernel can be faster than these.
struct Ceilings {
    int threads = 0;
    double read_bytes_per_second = 0;    // from memory, not from a cache
    std::vector<IntegerPeak> integer{};  // as available_isas()

    double integer_operations_per_second() const;
};
Ceilings measure_ceilings(int threads, double seconds);
// Once more, keeping the better of the two for each: whatever else ran at the first time may have slowed it.
Ceilings improved(const Ceilings& ceilings, double seconds);

}  // namespace lowbit::tools
