// matmul, and explain, which takes the same arguments.
#include <algorithm>
#include <iterator>

#include "call.hpp"
#include "ops.hpp"
#include "planes.hpp"

namespace lowbit_torch {
namespace {

constexpr const char* verb = "matmul";

// One side of a product and everything that keeps it alive.
struct Side {
    Planes planes;       // a plain tensor lies in `codes`
    std::string format;  // "": plain
    Matrix matrix;
    QuantizedPointer quantized;
    PackedPointer packed;

    lowbit_operand operand() const { return {quantized || packed ? nullptr : &matrix.view, quantized.get(), packed.get()}; }
};

// A vector of the epilogue: an argument that may be absent, and its view.
struct Vector {
    std::optional<Tensor> tensor;
    lowbit_tensor view = LOWBIT_TENSOR_INIT;

    const lowbit_tensor* read(const char* argument, const Place& place) {
        if (!tensor) return nullptr;
        require_place(verb, argument, *tensor, place, "x");
        view = as_vector(verb, argument, *tensor);
        return &view;
    }
};

lowbit_activation parse_activation(const std::string& name) {
    constexpr const char* names[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
    const auto* found = std::find(std::begin(names), std::end(names), name);
    if (found == std::end(names)) refuse("matmul: activation = \"" + name + "\"; use none, relu, gelu, gelu_tanh or silu");
    return lowbit_activation(found - std::begin(names));
}

class Product {
public:
    explicit Product(Stack& stack) {
        x_.planes.codes = stack.tensor();
        weight_.planes.codes = stack.tensor();
        bias_.tensor = stack.optional_tensor();
        take_planes(stack, x_.planes);
        take_planes(stack, weight_.planes);
        row_scale_.tensor = stack.optional_tensor();
        column_scale_.tensor = stack.optional_tensor();
        x_.format = stack.text();
        weight_.format = stack.text();
        const int64_t layout = stack.integer();
        const int64_t rows = stack.integer();
        const int64_t columns = stack.integer();
        args_.scale = float(stack.number());
        args_.output_scale = float(stack.number());
        const std::string activation = stack.text();
        args_.gate = stack.truth() ? 1 : 0;
        const std::optional<int32_t> dtype = stack.optional_dtype();
        quantize_x_ = stack.text();

        args_.activation = parse_activation(activation);
        place_ = place_of(x_.planes.codes);
        require_place(verb, "weight", weight_.planes.codes, place_, "x");
        read_x(columns);
        read_weight(layout, rows, columns);
        args_.x = x_.operand();
        args_.weight = weight_.operand();
        args_.bias = bias_.read("bias", place_);
        args_.row_scale = row_scale_.read("row_scale", place_);
        args_.column_scale = column_scale_.read("column_scale", place_);
        if (!quantize_x_.empty()) args_.x_format = quantize_x_.c_str();
        const int64_t outputs = args_.gate ? rows_ / 2 : rows_;
        y_ = as_matrix(verb, "dtype", allocate(with_last_size(x_.planes.codes, outputs), dtype.value_or(default_dtype()), place_));
        args_.y = y_.view;
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;

    const Place& place() const { return place_; }
    const lowbit_matmul_args& args() const { return args_; }
    const Tensor& result() const { return y_.held; }

private:
    static void take_planes(Stack& stack, Planes& planes) {
        planes.scales = stack.optional_tensor();
        planes.zeros = stack.optional_tensor();
        planes.tensor_scale = stack.optional_tensor();
    }

    void read_x(int64_t columns) {
        if (x_.format.empty())
            x_.matrix = as_matrix(verb, "x", x_.planes.codes);
        else
            x_.quantized = borrow(view_planes(verb, "x", x_.planes, parse_format(x_.format), columns));
    }

    void read_weight(int64_t layout, int64_t rows, int64_t columns) {
        Tensor& codes = weight_.planes.codes;
        if (layout != 0) {
            weight_.packed = borrow_packed(verb, codes, parse_format(weight_.format), rows, columns, layout);
            rows_ = rows;
            return;
        }
        if (codes.dim() != 2) refuse("matmul: weight has " + std::to_string(codes.dim()) + " dimensions; use two, [outputs, inputs]");
        rows_ = codes.size(0);
        if (weight_.format.empty())
            weight_.matrix = as_matrix(verb, "weight", codes);
        else
            weight_.quantized = borrow(view_planes(verb, "weight", weight_.planes, parse_format(weight_.format), columns));
    }

    // The type of a plain x; the raw product of int8 numbers; fp32 from codes.
    int32_t default_dtype() const {
        if (!x_.format.empty()) return aoti_torch_dtype_float32();
        const int32_t dtype = dtype_of(x_.planes.codes);
        return dtype == aoti_torch_dtype_int8() ? aoti_torch_dtype_int32() : dtype;
    }

    Side x_, weight_;
    Vector bias_, row_scale_, column_scale_;
    std::string quantize_x_;
    Place place_;
    int64_t rows_ = 0;  // of the weight
    Matrix y_;
    lowbit_matmul_args args_ = LOWBIT_MATMUL_ARGS_INIT;
};

}  // namespace

void matmul(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Product product(stack);
    Call call(product.place());
    size_t workspace = 0;
    check(lowbit_matmul_workspace(call.context(), &product.args(), &workspace));
    call.give_workspace(workspace);
    check(lowbit_matmul(call.context(), &product.args()));
    stack.give(product.result());
}

void explain(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Product product(stack);
    Call call(product.place());
    size_t workspace = 0;
    // Where nothing can run it, that is what there is to explain.
    if (lowbit_matmul_workspace(call.context(), &product.args(), &workspace) == LOWBIT_OK) call.give_workspace(workspace);
    size_t length = 0;
    check(lowbit_explain(call.context(), &product.args(), nullptr, 0, &length));
    std::string text(length, '\0');
    check(lowbit_explain(call.context(), &product.args(), text.data(), length + 1, &length));
    stack.give(text);
}

}  // namespace lowbit_torch
