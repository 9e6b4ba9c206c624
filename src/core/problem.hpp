// One call of a verb, checked: what the registry chooses a kernel for and what the kernel runs.
#pragma once
#include <optional>

#include "core/context.hpp"
#include "core/epilogue.hpp"
#include "core/tensor.hpp"

namespace lowbit::core {

struct QuantizeProblem {
    static constexpr const char* verb = "quantize";
    const Context* context = nullptr;
    Tensor x;
    QuantizedView result;
    bool static_scales = false;  // the scale planes of `result` hold the caller's scales: only codes are computed
    void* scratch = nullptr;     // what the kernel's `workspace` asked for
    bool for_product = false;    // the tokens of a product of the same call, which alone reads the result
};

struct DequantizeProblem {
    static constexpr const char* verb = "dequantize";
    const Context* context = nullptr;
    QuantizedView x;
    Tensor y;
    void* scratch = nullptr;
    bool for_product = false;  // as above
};

// Plain numbers in another type: y = x.
struct ConvertProblem {
    static constexpr const char* verb = "convert";
    const Context* context = nullptr;
    Tensor x, y;
    void* scratch = nullptr;

    // The same along the axis that y has dense, and as one row where both sides are contiguous.
    ConvertProblem in_order() const;
};

// One side of a product: plain fp32, fp16 or bf16 numbers, or codes with scales.
struct Operand {
    bool is_quantized = false;
    Tensor tensor;            // when not quantized
    QuantizedView quantized;  // when quantized

    int64_t rows() const { return is_quantized ? quantized.rows : tensor.rows; }
    int64_t columns() const { return is_quantized ? quantized.columns : tensor.columns; }
    // The format of its values; a plain tensor's is its element.
    Format format() const;
    Device device() const { return is_quantized ? quantized.device : tensor.device; }
};

struct MatmulProblem {
    static constexpr const char* verb = "matmul";
    const Context* context = nullptr;
    Operand x;       // M x K
    Operand weight;  // N x K; 2N x K with a gate
    Tensor y;        // M x N
    Epilogue epilogue;
    void* scratch = nullptr;
    bool behind_quantize = false;  // x was quantized by this call, just before
    // x before this call quantizes it, where a kernel may do that by itself (Kernel::quantizes_x); none once it is quantized.
    std::optional<Tensor> numbers = {};

    int64_t m() const { return y.rows; }
    int64_t n() const { return y.columns; }
    int64_t k() const { return x.columns(); }
    bool raw_integers() const { return y.element == Element::int32; }
};

// The largest K for which an int32 holds every product of two formats of integer codes.
int64_t largest_exact_k(const Format& x, const Format& weight);

// These throw a Failure that names the argument; after they return, a kernel may trust every pointer and size. `argument` is the name the
// caller knows it by.
void check_tensor(const char* verb, const char* argument, const Tensor& tensor, bool written);
void check_device(const char* verb, const char* argument, Device device, int index, const Context& context);
void check_quantized(const char* verb, const char* argument, const QuantizedView& view);
void check(const QuantizeProblem& problem);
void check(const DequantizeProblem& problem);
void check(const ConvertProblem& problem);
void check(const MatmulProblem& problem);

}  // namespace lowbit::core
