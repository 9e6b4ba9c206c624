// The calls that take plain pointers: each builds the same checked problem as the calls with handles.
#include "api/matmul.hpp"
#include "api/quantized.hpp"
#include "core/registry.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

const core::Context& cpu_context(const char* verb, const lowbit_context* context) {
    const core::Context& found = require_pointer(verb, "context", context)->context;
    core::require(found.device == Device::cpu, verb, ": takes CPU pointers, but the context is on cuda");
    return found;
}

void require_sizes(const char* verb, int64_t m, int64_t n, int64_t k) {
    core::require(m >= 0 && n >= 0 && k >= 0, verb, ": m = ", m, ", n = ", n, ", k = ", k, "; sizes cannot be negative");
}

core::Tensor matrix(const void* data, Element element, int64_t rows, int64_t columns) {
    return {const_cast<void*>(data), element, rows, columns, columns, 1, Device::cpu, 0};
}

// bytes[columns][rows] of [rows][columns].
core::Buffer transposed(const core::Context& context, const uint8_t* bytes, int64_t rows, int64_t columns) {
    core::Buffer result(context.allocator, core::checked_multiply(rows, columns, "b"));
    auto* out = reinterpret_cast<uint8_t*>(result.data());
    constexpr int64_t tile = 64;  // so that both sides stay in the cache
    for (int64_t row = 0; row < rows; row += tile)
        for (int64_t column = 0; column < columns; column += tile)
            for (int64_t r = row; r < std::min(rows, row + tile); ++r)
                for (int64_t c = column; c < std::min(columns, column + tile); ++c) out[c * rows + r] = bytes[r * columns + c];
    return result;
}

// A [m, a_bytes] and B [b_bytes, n], codes of `element` along k.
void code_matmul(const char* verb, const lowbit_context* handle, Element element, const void* a, const void* b, void* c, lowbit_element out,
                 int64_t m, int64_t n, int64_t k, float scale_a, float scale_b, float scale_c) {
    const core::Context& context = cpu_context(verb, handle);
    require_sizes(verb, m, n, k);
    const int64_t k_bytes = element == Element::int4 ? k / 2 + k % 2 : k;
    core::checked_multiply(m, k_bytes, "a");
    core::checked_multiply(n, k_bytes, "b");
    core::require(a != nullptr || m * k_bytes == 0, verb, ": a is a null pointer");
    core::require(b != nullptr || n * k_bytes == 0, verb, ": b is a null pointer");
    core::MatmulProblem problem;
    problem.context = &context;
    problem.y = matrix(c, Element(out), m, n);
    core::check_tensor(verb, "c", problem.y, true);
    core::require(problem.y.element != Element::int8, verb, ": element is int8; use int32, fp32, fp16 or bf16");
    if (problem.y.element != Element::int32) problem.epilogue.scale = scale_a * scale_b * scale_c;
    // The operands' memory is compared with c before anything is copied or written.
    problem.x = unscaled_codes(element, a, m, k);
    problem.weight = unscaled_codes(element, b, n, k);
    core::check(problem);
    const core::Buffer weight = transposed(context, static_cast<const uint8_t*>(b), k_bytes, n);
    problem.weight = unscaled_codes(element, weight.data(), n, k);
    run_matmul(problem);
}

core::QuantizedView blocks(Element element, const void* data, int64_t rows, int64_t columns) {
    core::QuantizedView view;
    view.format.element = element;
    view.rows = rows;
    view.columns = columns;
    view.codes = static_cast<uint8_t*>(const_cast<void*>(data));
    return view;
}

lowbit_status quantize_blocks(const char* verb, const lowbit_context* context, Element element, const float* x, void* q, int64_t rows,
                              int64_t k) {
    return guard([&] { quantize_tensor(cpu_context(verb, context), matrix(x, Element::fp32, rows, k), blocks(element, q, rows, k)); });
}

}  // namespace

lowbit_status lowbit_int8_matmul(lowbit_context* context, const int8_t* a, const int8_t* b, void* c, lowbit_element element, int64_t m,
                                 int64_t n, int64_t k, float scale_a, float scale_b, float scale_c) {
    return guard([&] { code_matmul("int8_matmul", context, Element::int8, a, b, c, element, m, n, k, scale_a, scale_b, scale_c); });
}

lowbit_status lowbit_int4_matmul(lowbit_context* context, const uint8_t* a, const uint8_t* b, void* c, lowbit_element element, int64_t m,
                                 int64_t n, int64_t k, float scale_a, float scale_b, float scale_c) {
    return guard([&] { code_matmul("int4_matmul", context, Element::int4, a, b, c, element, m, n, k, scale_a, scale_b, scale_c); });
}

lowbit_status lowbit_quantize_q4_0(lowbit_context* context, const float* x, void* q, int64_t rows, int64_t k) {
    return quantize_blocks("quantize_q4_0", context, Element::q4_0, x, q, rows, k);
}

lowbit_status lowbit_quantize_q8_1(lowbit_context* context, const float* x, void* q, int64_t rows, int64_t k) {
    return quantize_blocks("quantize_q8_1", context, Element::q8_1, x, q, rows, k);
}

lowbit_status lowbit_dequantize_q4_0(lowbit_context* context, const void* q, float* x, int64_t rows, int64_t k) {
    return guard([&] {
        const core::Context& found = cpu_context("dequantize_q4_0", context);
        const core::DequantizeProblem problem{&found, blocks(Element::q4_0, q, rows, k), matrix(x, Element::fp32, rows, k)};
        core::check(problem);
        core::run(problem);
    });
}

lowbit_status lowbit_gemm_q4_0_q8_1(lowbit_context* context, const void* weight, const void* activation, float* y, int64_t m, int64_t n,
                                    int64_t k) {
    return guard([&] {
        core::MatmulProblem problem;
        problem.context = &cpu_context("gemm_q4_0_q8_1", context);
        require_sizes("gemm_q4_0_q8_1", m, n, k);
        problem.x.is_quantized = problem.weight.is_quantized = true;
        problem.x.quantized = blocks(Element::q8_1, activation, n, k);
        problem.weight.quantized = blocks(Element::q4_0, weight, m, k);
        problem.y = {y, Element::fp32, n, m, 1, n, Device::cpu, 0};  // [m, n] seen as its transpose
        run_matmul(problem);
    });
}
