// The schemas of torch.ops.lowbit, and their registration. The functions behind them look at the device of their tensors themselves, so
// CPU and CUDA have the same ones; the shapes that torch.compile needs are in python/lowbit/_fake.py.
#include "ops.hpp"

#define LOWBIT_PLANES "Tensor codes, Tensor? scales, Tensor? zeros, Tensor? tensor_scale"
// x and weight are plain tensors where their format is ""; else codes, with the planes that the format has. weight_layout other than 0: the
// weight is packed, and rows and columns are its shape. columns is needed wherever codes are given. gate: the first half of the weight's
// rows gates the second. All tensors stand before the star, as torch.library.register_autograd wants it.
#define LOWBIT_PRODUCT                                                                                                                \
    "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? x_scales=None, Tensor? x_zeros=None, Tensor? x_tensor_scale=None, "         \
    "Tensor? weight_scales=None, Tensor? weight_zeros=None, Tensor? weight_tensor_scale=None, Tensor? row_scale=None, "               \
    "Tensor? column_scale=None, *, str x_format=\"\", str weight_format=\"\", int weight_layout=0, SymInt rows=0, SymInt columns=0, " \
    "float scale=1.0, float output_scale=1.0, str activation=\"none\", bool gate=False, ScalarType? dtype=None, str quantize_x=\"\")"
// x: numbers [images, channels, height, width], or uint8 bits [images, height, width, bytes] as sign_bits makes them. weight: numbers
// [outputs, channels of a group, height, width], or their bits, uint8 [outputs, height * width * ceil(channels / 8)]. padding: top, bottom,
// left, right. channels: of a group, which bits do not tell. The result is channels_last where x is, and where x is bits.
#define LOWBIT_CONVOLUTION                                                                                                           \
    "(Tensor x, Tensor weight, Tensor? scale, Tensor? bias, int[] kernel, int[] stride, int[] padding, int[] dilation, int groups, " \
    "SymInt channels, ScalarType dtype)"

STABLE_TORCH_LIBRARY(lowbit, m) {
    m.def(
        "quantize(Tensor x, str format, Tensor? scales=None, Tensor? zeros=None, Tensor? tensor_scale=None)"
        " -> (Tensor codes, Tensor scales, Tensor zeros, Tensor tensor_scale)");
    m.def("dequantize(" LOWBIT_PLANES ", str format, SymInt columns, ScalarType dtype) -> Tensor");
    m.def("pack(" LOWBIT_PLANES ", str format, SymInt columns) -> Tensor");
    m.def(
        "unpack(Tensor packed, str format, SymInt rows, SymInt columns, int layout)"
        " -> (Tensor codes, Tensor scales, Tensor zeros, Tensor tensor_scale)");
    // Gradients are registered from Python, and an op that has them goes through Python at every call: where none are wanted, the package
    // calls the second name of the same function.
    m.def("matmul" LOWBIT_PRODUCT " -> Tensor");
    m.def("matmul_no_grad" LOWBIT_PRODUCT " -> Tensor");
    m.def("explain" LOWBIT_PRODUCT " -> str");
    m.def("gemm(Tensor a, Tensor b, Tensor? c=None, *, ScalarType dtype, float alpha=1.0, float beta=0.0) -> Tensor");
    m.def("convert(Tensor x, ScalarType dtype) -> Tensor");
    m.def("binary_conv2d" LOWBIT_CONVOLUTION " -> Tensor");
    m.def("binary_conv2d_no_grad" LOWBIT_CONVOLUTION " -> Tensor");
    m.def("sign_bits(Tensor x, int groups) -> Tensor");
}

namespace {

void register_all(torch::stable::detail::StableLibrary& library) {
    library.impl("quantize", lowbit_torch::quantize);
    library.impl("dequantize", lowbit_torch::dequantize);
    library.impl("pack", lowbit_torch::pack);
    library.impl("unpack", lowbit_torch::unpack);
    library.impl("matmul", lowbit_torch::matmul);
    library.impl("matmul_no_grad", lowbit_torch::matmul);
    library.impl("explain", lowbit_torch::explain);
    library.impl("gemm", lowbit_torch::gemm);
    library.impl("convert", lowbit_torch::convert);
    library.impl("binary_conv2d", lowbit_torch::binary_conv2d);
    library.impl("binary_conv2d_no_grad", lowbit_torch::binary_conv2d);
    library.impl("sign_bits", lowbit_torch::sign_bits);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(lowbit, CPU, m) { register_all(m); }
STABLE_TORCH_LIBRARY_IMPL(lowbit, CUDA, m) { register_all(m); }
