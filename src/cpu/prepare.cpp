#include "cpu/prepare.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/status.hpp"
#include "reference/codes.hpp"

namespace lowbit::cpu {
namespace {

// Moves the even values of each chunk of 32 to its front.
void split_pairs(float* row, int64_t columns) {
    float odd[16];
    for (int64_t chunk = 0; chunk < columns; chunk += 32) {
        for (int i = 0; i < 16; ++i) {
            odd[i] = row[chunk + 2 * i + 1];
            row[chunk + i] = row[chunk + 2 * i];
        }
        std::copy(odd, odd + 16, row + chunk + 16);
    }
}

void widen_row(const core::QuantizedView& view, int64_t row, int8_t* out) {
    const uint8_t* codes = view.row_codes(row);
    const int64_t columns = view.columns;
    switch (view.format.element) {
    case Element::uint8:
        for (int64_t i = 0; i < columns; ++i) out[i] = int8_t(codes[i] ^ 0x80);  // code - 128
        break;
    case Element::int4:
        for (int64_t i = 0; i + 1 < columns; i += 2) {
            out[i] = int8_t(uint8_t(codes[i / 2] << 4)) >> 4;
            out[i + 1] = int8_t(codes[i / 2]) >> 4;
        }
        if (columns % 2) out[columns - 1] = int8_t(uint8_t(codes[columns / 2] << 4)) >> 4;
        break;
    case Element::uint4:
        for (int64_t i = 0; i < columns; ++i) out[i] = int8_t(codes[i / 2] >> (i % 2 * 4) & 15);
        break;
    case Element::int1:
        for (int64_t i = 0; i < columns; ++i) out[i] = codes[i / 8] >> (i % 8) & 1 ? int8_t(-1) : int8_t(1);
        break;
    default: std::copy(codes, codes + columns, out); break;
    }
}

// What widen_row left out of row's values.
int32_t row_offset(const core::QuantizedView& view, int64_t row) {
    const int zero = view.zero_point_at(view.format.scale_index(row, 0, view.columns));
    return view.format.element == Element::uint8 ? 128 - zero : -zero;
}

}  // namespace

void load_row(const Isa& isa, const core::Operand& operand, int64_t row, int64_t first, int64_t count, float* values) {
    if (count == 0) return;
    if (operand.is_quantized) {
        const core::QuantizedView& view = operand.quantized;
        if (view.format.is_plain())
            return isa.to_float(view.format.element, view.row_codes(row) + first * core::element_bytes(view.format.element), values, count);
        return reference::decode_row(view, row, first, count, values);
    }
    const core::Tensor& tensor = operand.tensor;
    const bool is_fp8 = tensor.element == Element::fp8_e4m3 || tensor.element == Element::fp8_e5m2;
    if (tensor.rows_are_contiguous() && !is_fp8) {
        const auto* data = static_cast<const std::byte*>(tensor.data) + tensor.offset(row, first) * core::element_bytes(tensor.element);
        return isa.to_float(tensor.element, data, values, count);
    }
    if (is_fp8) {
        const float* table = reference::code_values(tensor.element).data();
        const auto* codes = static_cast<const uint8_t*>(tensor.data);
        for (int64_t i = 0; i < count; ++i) values[i] = table[codes[tensor.offset(row, first + i)]];
        return;
    }
    for (int64_t i = 0; i < count; ++i) values[i] = core::load(tensor, row, first + i);
}

void load_rows(const Isa& isa, const core::Operand& operand, int64_t first_row, int64_t rows, int64_t first, int64_t count, float* values,
               int64_t stride) {
    if (!is_turned(operand)) {
        for (int64_t row = 0; row < rows; ++row) load_row(isa, operand, first_row + row, first, count, values + row * stride);
        return;
    }
    core::Operand across;
    across.tensor = operand.tensor.transposed();
    float column[rows_at_once];
    for (int64_t row = 0; row < rows; row += rows_at_once) {
        const int64_t some = std::min(rows_at_once, rows - row);
        for (int64_t i = 0; i < count; ++i) {
            load_row(isa, across, first + i, first_row + row, some, column);
            for (int64_t r = 0; r < some; ++r) values[(row + r) * stride + i] = column[r];
        }
    }
}

int bf16_parts(const core::Operand& x) {
    const Element element = x.format().element;
    return element == Element::bf16 ? 1 : element == Element::fp16 ? 2 : 3;
}

PreparedFloats prepare_floats(const core::Context& context, const Isa& isa, const core::Operand& x, TokenOrder order) {
    PreparedFloats prepared;
    const int64_t columns = x.columns(), padded = padded_columns(columns), stride = float_row_stride(columns);
    prepared.values = std::make_unique_for_overwrite<float[]>(size_t(x.rows() * stride));
    prepared.tokens = {prepared.values.get(), stride, x.rows(), nullptr, bf16_parts(x)};
    const int64_t per_task = is_turned(x) ? rows_at_once : 1;
    context.parallel(core::ceil_div(x.rows(), per_task), [&](int64_t task) {
        const int64_t first = task * per_task, rows = std::min(per_task, x.rows() - first);
        load_rows(isa, x, first, rows, 0, columns, prepared.values.get() + first * stride, stride);
        for (int64_t row = first; row < first + rows; ++row) {
            float* values = prepared.values.get() + row * stride;
            std::fill(values + columns, values + padded, 0.0f);
            if (order == TokenOrder::even_then_odd) split_pairs(values, padded);
        }
    });
    return prepared;
}

std::vector<float> row_scales(const core::QuantizedView& view) {
    std::vector<float> scales;
    for (int64_t row = 0; row < view.rows; ++row) scales.push_back(view.scale_at(view.format.scale_index(row, 0, view.columns)));
    return scales;
}

bool has_blocks(const core::Format& x) {
    if (x.element == Element::int8) return x.scale_is_constant_along_row() && !x.asymmetric;
    return x.element == Element::q8_1 || x.element == Element::q8_0;
}

PreparedBlocks prepare_blocks(const core::Context& context, const core::QuantizedView& x) {
    constexpr int64_t values = 32;
    const int64_t header = x.format.element == Element::q8_1 ? 4 : 2;  // d and s, or d alone
    const int64_t blocks = x.columns / values;
    PreparedBlocks prepared;
    prepared.codes.resize(size_t(x.rows * x.columns));
    prepared.scales.resize(size_t(x.rows * blocks));
    prepared.sums.resize(size_t(x.rows * blocks));
    prepared.columns = x.columns;
    prepared.one_scale = x.format.element == Element::int8;
    context.parallel(x.rows, [&](int64_t row) {
        int8_t* codes = prepared.codes.data() + row * x.columns;
        float* scales = prepared.scales.data() + row * blocks;
        const uint8_t* source = x.row_codes(row);
        if (prepared.one_scale) {
            std::copy(source, source + x.columns, codes);
            std::fill_n(scales, blocks, x.scale_at(x.format.scale_index(row, 0, x.columns)));
        } else {
            for (int64_t block = 0; block < blocks; ++block, source += header + values) {
                uint16_t scale = 0;
                std::memcpy(&scale, source, sizeof(scale));
                std::memcpy(codes + block * values, source + header, values);
                scales[block] = core::fp16_to_float(scale);
            }
        }
        for (int64_t block = 0; block < blocks; ++block)
            prepared.sums[size_t(row * blocks + block)] = std::accumulate(codes + block * values, codes + (block + 1) * values, 0);
    });
    return prepared;
}

BlockTokens PreparedBlocks::part(int64_t first_token, int64_t tokens) const {
    const int64_t blocks = columns / 32;
    return {codes.data() + first_token * columns,
            scales.data() + first_token * blocks,
            sums.data() + first_token * blocks,
            tokens,
            columns,
            one_scale};
}

PreparedIntegers prepare_integers(const core::Context& context, const core::QuantizedView& view, int64_t first_row, int64_t rows,
                                  bool with_sums) {
    PreparedIntegers prepared;
    prepared.stride = view.columns;
    if (view.format.element == Element::int8) {
        prepared.codes = reinterpret_cast<const int8_t*>(view.row_codes(first_row));
    } else {
        prepared.memory = std::make_unique_for_overwrite<int8_t[]>(size_t(rows * view.columns));
        prepared.codes = prepared.memory.get();
        context.parallel(rows, [&](int64_t row) { widen_row(view, first_row + row, prepared.memory.get() + row * view.columns); });
    }
    if (view.format.asymmetric)
        for (int64_t row = 0; row < rows; ++row) prepared.offsets.push_back(row_offset(view, first_row + row));
    if (with_sums)
        for (int64_t row = 0; row < rows; ++row) {
            const int8_t* codes = prepared.codes + row * prepared.stride;
            prepared.sums.push_back(std::accumulate(codes, codes + view.columns, int64_t(0)));
        }
    return prepared;
}

}  // namespace lowbit::cpu
