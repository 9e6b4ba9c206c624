// Scales and zero points of a quantized weight as the inner loops read them.
#pragma once
#include <memory>
#include <type_traits>

#include "core/ggml_blocks.hpp"
#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

// Those of a few rows in fp32: [row][group].
struct RowScales {
    std::unique_ptr<float[]> scales, zeros;  // not initialized first: there are as many as a tenth of the weight's bytes
    int64_t groups = 1;

    void load(const Isa& isa, const core::QuantizedView& view, int64_t first_row, int64_t rows);

private:
    void load_run(const Isa& isa, const core::QuantizedView& view, int64_t first, int64_t count, int64_t to);
};

// The fields that Weight4, CodedWeight and BlockWeight share, for some rows. `scales` keeps what the weight points to.
template <class Weight>
Weight rows_of_weight(const Isa& isa, const core::QuantizedView& view, int64_t first_row, int64_t rows, RowScales& scales) {
    Weight weight;
    weight.codes = view.row_codes(first_row);
    weight.row_stride = view.row_bytes();
    weight.rows = rows;
    weight.columns = view.columns;
    if constexpr (!std::is_same_v<Weight, BlockWeight>) {
        if (view.format.is_ggml()) {
            weight.block_bytes = core::ggml_block(view.format.element).bytes;
        } else {
            scales.load(isa, view, first_row, rows);
            weight.group = view.format.span(view.columns);
            weight.scales = scales.scales.get();
            weight.zeros = scales.zeros.get();
            weight.scale_stride = scales.groups;
        }
    }
    return weight;
}

// Whether an operand is numbers of 16 or 32 bits in rows, and no codes.
bool is_rows_of_numbers(const core::Operand& operand);
// Codes, or rows of numbers, as the inner loops for CodedWeight read them.
CodedWeight coded_rows(const Isa& isa, const core::Operand& operand, int64_t first, int64_t rows, RowScales& scales);

}  // namespace lowbit::cpu
