// What this processor and its operating system let a program use.
#pragma once
#include <string>
#include <vector>

namespace lowbit::cpu {

struct Features {
    bool avx2 = false;           // with FMA and F16C
    bool avx512 = false;         // F, BW, DQ, VL and VNNI
    bool avx512_popcnt = false;  // VPOPCNTDQ besides avx512
    bool avx512_bf16 = false;    // BF16 besides avx512
    bool amx = false;            // AMX-INT8 and AMX-BF16 besides avx512, with the tile registers granted by the kernel
    std::string processor;
    std::vector<std::string> flags;  // every instruction set found, for `lowbit info`
};

// Asked once; the registers a set needs must be enabled by the operating system (XCR0) and, for AMX, granted to this process.
const Features& features();

}  // namespace lowbit::cpu
