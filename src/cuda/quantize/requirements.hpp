// What the fast kernels ask of a problem, in words they share.
#pragma once
#include <string>

#include "core/problem.hpp"
#include "cuda/formats/load_bytes.cuh"
#include "cuda/quantize/units.cuh"

namespace lowbit::cuda {

// Rows of whole units, each at a multiple of 16 bytes.
inline std::string reason_against_rows(const core::Tensor& plain) {
    if (plain.column_stride != 1) return "for columns side by side";
    if (plain.columns == 0 || plain.columns % unit_values != 0) return "for K a multiple of 8";
    if (!is_aligned(plain.data, 16) || (plain.rows > 1 && plain.row_stride * bytes_of(plain.element) % 16 != 0))
        return "for rows at multiples of 16 bytes";
    return "";
}

// The same, with one row right behind the other, and few enough units for a 31-bit index.
inline std::string reason_against_dense(const core::Tensor& plain) {
    if (std::string reason = reason_against_rows(plain); !reason.empty()) return reason;
    if (plain.rows > 1 && plain.row_stride != plain.columns) return "for rows without gaps";
    if (plain.rows * (plain.columns / unit_values) >= int64_t(1) << 31) return "for fewer than 2^34 values";
    return "";
}

inline bool is_symmetric_fast_element(Element element) {
    switch (element) {
    case Element::int8:
    case Element::int4:
    case Element::fp8_e4m3:
    case Element::fp8_e5m2:
    case Element::fp4_e2m1:
    case Element::nf4: return true;
    default: return false;
    }
}

}  // namespace lowbit::cuda
