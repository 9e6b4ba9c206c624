"""Binary products: both sides are signs, so a sum over K is K less twice the number of differing bits, an exact integer.

A sign is what int1 stores: -1 where a number is below 0, else +1 (for 0, -0 and NaN too). Bits have channels innermost, 8 to a byte, and
zeros that fill up a byte:

    bits of x        [images, height, width, groups * ceil(channels of a group / 8)]
    bits of a weight [outputs, kernel height * kernel width * ceil(channels of a group / 8)]

The convolution of these is an op of the library (torch/convolution.cpp). A linear layer is a product of two int1 matrices: bits that fill
up a row are 0 on both sides, never differ, and what they add to a sum is subtracted. Here are that product and the gradients of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from ._launch import dependent_launch

_OPS = torch.ops.lowbit
_FORMAT = "int1:tensor"
# Rows of bits are multiples of so many bytes: the kernel for tensor cores copies 16 at a time.
_ROW_BYTES = {"cuda": 16}
# Scratch of a product, less on a CPU, whose products widen the bits in memory of their own. One token is the least that is worked on.
_SCRATCH_BYTES = {"cpu": 8 << 20, "cuda": 64 << 20}


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


@dataclass(frozen=True)
class Window:
    """Where the patches of an image lie."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]  # top, bottom, left, right
    dilation: tuple[int, int]

    @staticmethod
    def of(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Window:
        top, bottom, left, right = padding
        return Window((kernel[0], kernel[1]), (stride[0], stride[1]), (top, bottom, left, right), (dilation[0], dilation[1]))

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        def positions(size: int, axis: int) -> int:
            room = size + self.padding[2 * axis] + self.padding[2 * axis + 1] - self.dilation[axis] * (self.kernel[axis] - 1) - 1
            return room // self.stride[axis] + 1

        return positions(height, 0), positions(width, 1)


def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((1, 1), dtype=torch.float32, device=device)


def weight_bits(weight: torch.Tensor) -> torch.Tensor:
    """[outputs, channels, height, width] -> uint8 [outputs, height * width * ceil(channels/8)]"""
    return _OPS.sign_bits(weight.detach(), 1).flatten(1)


def _signs_of_bits(bits: torch.Tensor, channels: int) -> torch.Tensor:
    """uint8 [..., ceil(channels/8)] -> the numbers -1 and +1, as fp32 [..., channels]."""
    rows = bits.reshape(-1, bits.shape[-1])
    return _OPS.dequantize(rows, _one(bits.device), None, None, _FORMAT, channels, torch.float32).reshape(*bits.shape[:-1], channels)


def _signs(x: torch.Tensor) -> torch.Tensor:
    return 1.0 - 2.0 * (x < 0).to(torch.float32)


def is_bits(x: torch.Tensor) -> bool:
    """Not numbers, but their signs."""
    return x.dtype == torch.uint8


# ---- convolutions


def _setup_conv2d(ctx, inputs, output):
    x, weight, scale, bias, *ctx.window, ctx.groups, ctx.channels, _ = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(x, weight, scale)


def _image_signs(x: torch.Tensor, groups: int, channels: int) -> torch.Tensor:
    if not is_bits(x):
        return _signs(x)
    return _signs_of_bits(x.unflatten(-1, (groups, -1)), channels).flatten(-2).permute(0, 3, 1, 2).contiguous()


def _filter_signs(weight: torch.Tensor, kernel: Sequence[int], channels: int) -> torch.Tensor:
    if not is_bits(weight):
        return _signs(weight)
    return _signs_of_bits(weight.reshape(-1, *kernel, ceil_div(channels, 8)), channels).permute(0, 3, 1, 2).contiguous()


def _backward_conv2d(ctx, grad):
    """The straight-through estimate: sign passes gradients on as they are where its argument lies in [-1, 1], and none elsewhere. (torch
    asks for none of a result of integers.)"""
    x, weight, scale = ctx.saved_tensors
    wants_x, wants_weight, wants_scale, wants_bias = ctx.needs_input_grad[:4]
    kernel, stride, (top, bottom, left, right), dilation = ctx.window
    grad = grad.to(torch.float32)
    grad_x = grad_weight = grad_scale = grad_bias = None
    if wants_bias:
        grad_bias = grad.sum((0, 2, 3)).to(ctx.bias_dtype)
    if wants_scale:
        counts = _OPS.binary_conv2d_no_grad(x, weight, None, None, *ctx.window, ctx.groups, ctx.channels, torch.float32)
        grad_scale = (grad * counts).sum((0, 2, 3))
    if scale is not None:
        grad = grad * scale.reshape(-1, 1, 1)
    if wants_x or wants_weight:
        padded = functional.pad(_image_signs(x, ctx.groups, ctx.channels), (left, right, top, bottom))
        signs = _filter_signs(weight, kernel, ctx.channels)
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad, padded, signs, None, stride, [0, 0], dilation, False, [0, 0], ctx.groups, [wants_x, wants_weight, False]
        )
    if wants_x:
        grad_x = torch.where(x.abs() <= 1, grad_x[:, :, top : top + x.shape[2], left : left + x.shape[3]], 0).to(x.dtype)
    if wants_weight:
        grad_weight = torch.where(weight.abs() <= 1, grad_weight, 0).to(weight.dtype)
    return grad_x, grad_weight, grad_scale, grad_bias, *[None] * 7


torch.library.register_autograd("lowbit::binary_conv2d", _backward_conv2d, setup_context=_setup_conv2d)


# ---- linear layers


def _bits(x: torch.Tensor) -> torch.Tensor:
    """[M, K] -> uint8 [M, ceil(K/8)]"""
    codes, _, _, _ = _OPS.quantize(x, _FORMAT, _one(x.device), None, None)
    return codes


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[M, bytes] x [N, bytes] -> int32 [M, N]: the bits that agree less those that differ."""
    one = _one(x.device)
    return _OPS.matmul_no_grad(
        x, weight, None, one, None, None, one, x_format=_FORMAT, weight_format=_FORMAT, columns=8 * x.shape[1], dtype=torch.int32
    )


@dependent_launch(False)  # the weights of these products are made just before them
def _binary_linear(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The integers of x [M, K] . weight [N, K]^T, as int32 or fp32 (exact up to 2^24). weight: numbers, or their bits [N, ceil(K/8)]."""
    tokens, inputs = x.shape
    bits = weight if is_bits(weight) else _bits(weight)
    y = torch.empty((tokens, bits.shape[0]), dtype=dtype, device=x.device)
    if y.numel() == 0 or inputs == 0:
        return y.zero_()
    step = _ROW_BYTES.get(x.device.type, 1)
    row_bytes = ceil_div(bits.shape[1], step) * step
    fill = (0, row_bytes - bits.shape[1])
    bits = functional.pad(bits, fill) if fill[1] else bits
    token_bytes = inputs * x.element_size() + row_bytes + 4 * bits.shape[0]
    at_once = max(1, _SCRATCH_BYTES[x.device.type] // token_bytes)
    for first in range(0, tokens, at_once):
        some = slice(first, min(first + at_once, tokens))
        rows = _bits(x[some])
        sums = _product(functional.pad(rows, fill) if fill[1] else rows, bits)
        torch.sub(sums, 8 * row_bytes - inputs, out=y[some])
    return y


def _fake_linear(x, weight, dtype):
    return x.new_empty((x.shape[0], weight.shape[0]), dtype=dtype)


def _setup_linear(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)


def _backward_linear(ctx, grad):
    """As that of convolutions."""
    x, weight = ctx.saved_tensors
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        signs = _signs_of_bits(weight, x.shape[1]) if is_bits(weight) else _signs(weight)
        grad_x = torch.where(x.abs() <= 1, grad @ signs, 0).to(x.dtype)
    if ctx.needs_input_grad[1]:
        grad_weight = torch.where(weight.abs() <= 1, grad.t() @ _signs(x), 0).to(weight.dtype)
    return grad_x, grad_weight, None


# Not through torch.library.custom_op, whose first call takes seconds: it imports the compiler.
_LINEAR = "lowbit::binary_linear"
torch.library.define(_LINEAR, "(Tensor x, Tensor weight, ScalarType dtype) -> Tensor")
torch.library.impl(_LINEAR, ("cpu", "cuda"), _binary_linear)
torch.library.register_fake(_LINEAR, _fake_linear)
torch.library.register_autograd(_LINEAR, _backward_linear, setup_context=_setup_linear)
