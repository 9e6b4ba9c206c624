// Everything in this folder is compiled once per instruction set, with different flags. So it stands in anonymous namespaces and takes
// nothing from headers that might be emitted as a function shared between those compilations (no std::min, nothing of core/numeric.hpp):
// the linker would keep one of them, perhaps one that this processor cannot run.
#pragma once
#include <cstdint>

namespace lowbit::cpu {
namespace {

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace
}  // namespace lowbit::cpu
