#include "cpu/features.hpp"

#include <array>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lowbit::cpu {
namespace {

#if defined(__x86_64__)

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
    Registers r;
    if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
    return r;
}

// Which register states the operating system saves: without that, an instruction set is there but must not be used.
uint64_t saved_states() {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
}

// Linux grants the 8 KB of tile registers only to processes that ask.
bool tiles_are_granted() {
#if defined(__linux__)
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

std::string processor_name() {
    char name[49] = {};
    for (uint32_t i = 0; i < 3; ++i) {
        const Registers r = cpuid(0x80000002u + i);
        std::memcpy(name + 16 * i, &r, 16);
    }
    const std::string text = name;
    const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
    return begin == std::string::npos ? "x86-64 processor" : text.substr(begin, end - begin + 1);
}

Features detect() {
    const Registers one = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1);
    const auto bit = [](uint32_t word, int index) { return (word >> index & 1) != 0; };
    constexpr uint64_t ymm = 0x6, zmm = 0xe6, tiles = 0x60000;
    const uint64_t saved = bit(one.ecx, 27) ? saved_states() : 0;  // OSXSAVE
    const bool has_ymm = (saved & ymm) == ymm, has_zmm = (saved & zmm) == zmm, has_tiles = (saved & tiles) == tiles;

    Features features;
    features.processor = processor_name();
    const auto flag = [&](const char* name, bool present) {
        if (present) features.flags.emplace_back(name);
        return present;
    };
    const bool fma = flag("fma", has_ymm && bit(one.ecx, 12)), f16c = flag("f16c", has_ymm && bit(one.ecx, 29));
    const bool avx2 = flag("avx2", has_ymm && bit(seven.ebx, 5));
    flag("avx_vnni", has_ymm && bit(seven_one.eax, 4));
    const bool f = flag("avx512f", has_zmm && bit(seven.ebx, 16)), dq = flag("avx512dq", has_zmm && bit(seven.ebx, 17));
    const bool bw = flag("avx512bw", has_zmm && bit(seven.ebx, 30)), vl = flag("avx512vl", has_zmm && bit(seven.ebx, 31));
    const bool vnni = flag("avx512_vnni", has_zmm && bit(seven.ecx, 11));
    const bool popcnt = flag("avx512_vpopcntdq", has_zmm && bit(seven.ecx, 14));
    const bool bf16 = flag("avx512_bf16", has_zmm && bit(seven_one.eax, 5));
    flag("avx512_fp16", has_zmm && bit(seven.edx, 23));
    const bool granted = has_tiles && bit(seven.edx, 24) && tiles_are_granted();
    const bool amx_bf16 = flag("amx_bf16", granted && bit(seven.edx, 22)), amx_int8 = flag("amx_int8", granted && bit(seven.edx, 25));
    features.avx2 = avx2 && fma && f16c;
    features.avx512 = features.avx2 && f && dq && bw && vl && vnni;
    features.avx512_popcnt = features.avx512 && popcnt;
    features.avx512_bf16 = features.avx512 && bf16;
    features.amx = features.avx512 && amx_bf16 && amx_int8;
    return features;
}

#else

Features detect() {
    Features features;
    features.processor = "unknown processor";
    return features;
}

#endif

}  // namespace

const Features& features() {
    static const Features found = detect();
    return found;
}

}  // namespace lowbit::cpu
