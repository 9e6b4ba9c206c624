// Plain numbers: gemm, and convert.
#include <utility>

#include "call.hpp"
#include "ops.hpp"

namespace lowbit_torch {
namespace {

void require_matrix(const char* argument, const Tensor& tensor) {
    if (tensor.dim() != 2) refuse("gemm: " + std::string(argument) + " has " + std::to_string(tensor.dim()) + " dimensions; use two");
}

std::string shape(int64_t rows, int64_t columns) { return std::to_string(rows) + " x " + std::to_string(columns); }

// c in the result's memory, which beta is multiplied with there: in the result's own type, or widened.
void bring_before(const Call& call, const std::optional<Tensor>& c, double beta, const Matrix& y, const Place& place) {
    if (!c) refuse("gemm: beta = " + std::to_string(beta) + ", but there is no c");
    require_matrix("c", *c);
    require_place("gemm", "c", *c, place, "a");
    const Matrix before = as_matrix("gemm", "c", *c);
    if (before.view.shape[0] != y.view.shape[0] || before.view.shape[1] != y.view.shape[1])
        refuse("gemm: c is " + shape(before.view.shape[0], before.view.shape[1]) + " but a . b is " +
               shape(y.view.shape[0], y.view.shape[1]));
    if (before.view.element != y.view.element && y.view.element != LOWBIT_FP32)
        refuse("gemm: c has another dtype than the result; use the same, or float32 for the result");
    check(lowbit_convert(call.context(), &before.view, &y.view));
}

}  // namespace

void gemm(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Tensor a = stack.tensor();
    const Tensor b = stack.tensor();
    const std::optional<Tensor> c = stack.optional_tensor();
    const int32_t dtype = stack.dtype();
    const double alpha = stack.number();
    const double beta = stack.number();

    require_matrix("a", a);
    require_matrix("b", b);
    if (a.size(1) != b.size(0)) refuse("gemm: a has K = " + std::to_string(a.size(1)) + " but b has K = " + std::to_string(b.size(0)));
    const Place place = place_of(a);
    require_place("gemm", "b", b, place, "a");
    const Matrix x = as_matrix("gemm", "a", a);
    Matrix weight = as_matrix("gemm", "b", b);
    std::swap(weight.view.shape[0], weight.view.shape[1]);
    std::swap(weight.view.strides[0], weight.view.strides[1]);
    const Matrix y = as_matrix("gemm", "dtype", allocate({a.size(0), b.size(1)}, dtype, place));

    Call call(place);
    if (beta != 0) bring_before(call, c, beta, y, place);
    lowbit_matmul_args args = LOWBIT_MATMUL_ARGS_INIT;
    args.x.tensor = &x.view;
    args.weight.tensor = &weight.view;
    args.y = y.view;
    args.scale = float(alpha);
    args.beta = float(beta);
    size_t workspace = 0;
    check(lowbit_matmul_workspace(call.context(), &args, &workspace));
    call.give_workspace(workspace);
    check(lowbit_matmul(call.context(), &args));
    stack.give(y.held);
}

void convert(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Tensor x = stack.tensor();
    const int32_t dtype = stack.dtype();

    const Matrix from = as_matrix("convert", "x", x);
    const Place place = place_of(x);
    const Matrix y = as_matrix("convert", "dtype", allocate(with_last_size(x, from.view.shape[1]), dtype, place));
    const Call call(place);
    check(lowbit_convert(call.context(), &from.view, &y.view));
    stack.give(y.held);
}

}  // namespace lowbit_torch
