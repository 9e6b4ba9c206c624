"""What torch.compile needs to know of each op: the shapes and types of its results, without running it."""

import torch

from ._bits import Window, ceil_div, is_bits
from ._format import parse

_Planes = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _rows(tensor: torch.Tensor) -> int:
    rows = 1
    for size in tensor.shape[:-1]:
        rows = rows * size
    return rows


def _empty_planes(like: torch.Tensor, format: str, rows: int, columns: int) -> _Planes:
    parsed = parse(format)
    shapes = parsed.planes(rows, columns)
    return (
        like.new_empty(shapes.codes, dtype=parsed.codes_dtype),
        like.new_empty(shapes.scales, dtype=parsed.scales_dtype),
        like.new_empty(shapes.zeros, dtype=torch.uint8),
        like.new_empty(shapes.tensor_scale, dtype=torch.float32),
    )


@torch.library.register_fake("lowbit::quantize")
def _quantize(x, format, scales=None, zeros=None, tensor_scale=None):
    return _empty_planes(x, format, _rows(x), x.shape[-1])


@torch.library.register_fake("lowbit::dequantize")
def _dequantize(codes, scales, zeros, tensor_scale, format, columns, dtype):
    return codes.new_empty((*codes.shape[:-1], columns), dtype=dtype)


@torch.library.register_fake("lowbit::pack")
def _pack(codes, scales, zeros, tensor_scale, format, columns):
    # How many bytes it takes is known to the kernels of the device alone.
    return codes.new_empty((torch.library.get_ctx().new_dynamic_size(),), dtype=torch.uint8)


@torch.library.register_fake("lowbit::unpack")
def _unpack(packed, format, rows, columns, layout):
    return _empty_planes(packed, format, rows, columns)


@torch.library.register_fake("lowbit::gemm")
def _gemm(a, b, c=None, *, dtype, alpha=1.0, beta=0.0):
    return a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)


@torch.library.register_fake("lowbit::convert")
def _convert(x, dtype):
    return x.new_empty(x.shape, dtype=dtype)


@torch.library.register_fake("lowbit::matmul_no_grad")
@torch.library.register_fake("lowbit::matmul")
def _matmul(
    x, weight, bias=None, x_scales=None, x_zeros=None, x_tensor_scale=None, weight_scales=None, weight_zeros=None,
    weight_tensor_scale=None, row_scale=None, column_scale=None, *, x_format="", weight_format="", weight_layout=0, rows=0, columns=0,
    scale=1.0, output_scale=1.0, activation="none", gate=False, dtype=None, quantize_x="",
):  # fmt: skip
    outputs = rows if weight_layout else weight.shape[0]
    if gate:
        outputs = outputs // 2
    if dtype is None:
        if x_format:
            dtype = torch.float32
        else:
            dtype = torch.int32 if x.dtype == torch.int8 else x.dtype
    return x.new_empty((*x.shape[:-1], outputs), dtype=dtype)


def _memory_format(x: torch.Tensor) -> torch.memory_format:
    """That of a convolution's result."""
    last = is_bits(x) or (x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous())
    return torch.channels_last if last else torch.contiguous_format


@torch.library.register_fake("lowbit::binary_conv2d_no_grad")
@torch.library.register_fake("lowbit::binary_conv2d")
def _binary_conv2d(x, weight, scale, bias, kernel, stride, padding, dilation, groups, channels, dtype):
    size = Window.of(kernel, stride, padding, dilation).output_size(*(x.shape[1:3] if is_bits(x) else x.shape[2:]))
    return torch.empty((x.shape[0], weight.shape[0], *size), dtype=dtype, device=x.device, memory_format=_memory_format(x))


@torch.library.register_fake("lowbit::sign_bits")
def _sign_bits(x, groups):
    return x.new_empty((x.shape[0], *x.shape[2:], groups * ceil_div(x.shape[1] // groups, 8)), dtype=torch.uint8)
