// The calls that take plain pointers: each builds the same checked problem as the calls with handles.
#include "api/matmul.hpp"
#include "api/quantized.hpp"
#include "core/registry.hpp"
#include "cuda/memory.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

const core::Context& context_of(const char* verb, const lowbit_context* context) {
    return require_pointer(verb, "context", context)->context;
}

void require_sizes(const char* verb, int64_t m, int64_t n, int64_t k) {
    core::require(m >= 0 && n >= 0 && k >= 0, verb, ": m = ", m, ", n = ", n, ", k = ", k, "; sizes cannot be negative");
}

// The pointers of these calls are the context's.
core::Tensor matrix(const core::Context& context, const void* data, Element element, int64_t rows, int64_t columns) {
    return {const_cast<void*>(data), element, rows, columns, columns, 1, context.device, context.device_index};
}

// bytes[columns][rows] of [rows][columns].
std::byte* transposed(const core::Context& context, const uint8_t* bytes, int64_t rows, int64_t columns, core::Scratch& scratch) {
    std::byte* result = scratch.take(core::checked_multiply(rows, columns, "b"));
    if (context.device == Device::cuda) {
        core::Tensor source = matrix(context, bytes, Element::int8, columns, rows);
        source.row_stride = 1, source.column_stride = columns;
        cuda::gather_bytes(context, source, result);
        return result;
    }
    auto* out = reinterpret_cast<uint8_t*>(result);
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
    const core::Context& context = context_of(verb, handle);
    require_sizes(verb, m, n, k);
    const int64_t k_bytes = element == Element::int4 ? k / 2 + k % 2 : k;
    core::checked_multiply(m, k_bytes, "a");
    core::checked_multiply(n, k_bytes, "b");
    core::require(a != nullptr || m * k_bytes == 0, verb, ": a is a null pointer");
    core::require(b != nullptr || n * k_bytes == 0, verb, ": b is a null pointer");
    core::MatmulProblem problem;
    problem.context = &context;
    problem.y = matrix(context, c, Element(out), m, n);
    core::check_tensor(verb, "c", problem.y, true);
    core::require(problem.y.element != Element::int8, verb, ": element is int8; use int32, fp32, fp16 or bf16");
    if (problem.y.element != Element::int32) problem.epilogue.scale = scale_a * scale_b * scale_c;
    // The operands' memory is compared with c before anything is copied or written.
    problem.x = unscaled_codes(element, a, m, k, context.device, context.device_index);
    problem.weight = unscaled_codes(element, b, n, k, context.device, context.device_index);
    core::check(problem);
    core::Scratch scratch(context);
    problem.weight.quantized.codes = reinterpret_cast<uint8_t*>(transposed(context, static_cast<const uint8_t*>(b), k_bytes, n, scratch));
    core::run(problem, scratch);
}

core::QuantizedView blocks(const core::Context& context, Element element, const void* data, int64_t rows, int64_t columns) {
    core::QuantizedView view;
    view.format.element = element;
    view.rows = rows;
    view.columns = columns;
    view.codes = static_cast<uint8_t*>(const_cast<void*>(data));
    view.device = context.device;
    view.device_index = context.device_index;
    return view;
}

lowbit_status quantize_blocks(const char* verb, const lowbit_context* context, Element element, const float* x, void* q, int64_t rows,
                              int64_t k) {
    return guard([&] {
        const core::Context& found = context_of(verb, context);
        core::Scratch scratch(found);
        quantize_tensor(found, matrix(found, x, Element::fp32, rows, k), blocks(found, element, q, rows, k), scratch, false);
    });
}

// A side of gemm as a view: rows of fp32, fp16 or bf16, `stride` numbers apart.
lowbit_tensor rows_of(const core::Context& context, const char* argument, const void* data, lowbit_element type, int64_t rows,
                      int64_t columns, int64_t stride) {
    const Element element = Element(type);
    core::require(element == Element::fp32 || element == Element::fp16 || element == Element::bf16, "gemm: ", argument, " has type ",
                  int(type), "; use fp32, fp16 or bf16");
    core::require(stride >= columns, "gemm: ld", argument, " = ", stride, ", but a row of ", argument, " has ", columns, " numbers");
    core::Tensor tensor = matrix(context, data, element, rows, columns);
    tensor.row_stride = stride;
    core::check_tensor("gemm", argument, tensor, false);
    lowbit_tensor view = lowbit_matrix(tensor.data, type, rows, columns);
    view.strides[0] = stride;
    view.device = lowbit_device(context.device), view.device_index = context.device_index;
    return view;
}

}  // namespace

lowbit_status lowbit_gemm(lowbit_context* context, int64_t m, int64_t n, int64_t k, float alpha, const void* a, lowbit_element type_a,
                          int64_t lda, const void* b, lowbit_element type_b, int64_t ldb, int32_t transpose_b, float beta, void* c,
                          lowbit_element type_c, int64_t ldc) {
    lowbit_matmul_args args = LOWBIT_MATMUL_ARGS_INIT;
    lowbit_tensor x = LOWBIT_TENSOR_INIT, weight = LOWBIT_TENSOR_INIT;
    const lowbit_status status = guard([&] {
        const core::Context& found = context_of("gemm", context);
        require_sizes("gemm", m, n, k);
        core::require(transpose_b == 0 || transpose_b == 1, "gemm: transpose_b = ", transpose_b, "; use 0 or 1");
        x = rows_of(found, "a", a, type_a, m, k, lda);
        weight = transpose_b ? rows_of(found, "b", b, type_b, n, k, ldb) : rows_of(found, "b", b, type_b, k, n, ldb);
        args.y = rows_of(found, "c", c, type_c, m, n, ldc);
        if (transpose_b == 0) std::swap(weight.shape[0], weight.shape[1]), std::swap(weight.strides[0], weight.strides[1]);
    });
    if (status != LOWBIT_OK) return status;
    args.x.tensor = &x;
    args.weight.tensor = &weight;
    args.scale = alpha;
    args.beta = beta;
    return lowbit_matmul(context, &args);
}

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
        const core::Context& found = context_of("dequantize_q4_0", context);
        const core::DequantizeProblem problem{&found, blocks(found, Element::q4_0, q, rows, k), matrix(found, x, Element::fp32, rows, k)};
        core::check(problem);
        core::run(problem);
    });
}

lowbit_status lowbit_gemm_q4_0_q8_1(lowbit_context* context, const void* weight, const void* activation, float* y, int64_t m, int64_t n,
                                    int64_t k) {
    return guard([&] {
        core::MatmulProblem problem;
        const core::Context& found = context_of("gemm_q4_0_q8_1", context);
        problem.context = &found;
        require_sizes("gemm_q4_0_q8_1", m, n, k);
        problem.x.is_quantized = problem.weight.is_quantized = true;
        problem.x.quantized = blocks(found, Element::q8_1, activation, n, k);
        problem.weight.quantized = blocks(found, Element::q4_0, weight, m, k);
        problem.y = {y, Element::fp32, n, m, 1, n, found.device, found.device_index};  // [m, n] seen as its transpose
        core::check(problem);
        core::run(problem);
    });
}
