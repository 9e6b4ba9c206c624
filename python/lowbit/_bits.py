"""Binary products: both sides are signs, so a sum over K is K less twice the number of differing bits, an exact integer.

A sign is what int1 stores: -1 where a number is below 0, else +1 (for 0, -0 and NaN too). Channels lie innermost, 8 to a byte, and a pixel
starts on a byte. Patches of an image are then copies of a few bytes each, and a convolution is a product of two int1 matrices:

    bits of x        [groups, images, height, width, channel bytes]
    patches          [images * height * width of the result, kernel height * kernel width * channel bytes]
    bits of a weight [outputs,                               kernel height * kernel width * channel bytes]

Bits that fill up a byte or a row are 0 on both sides: they never differ, and what they add to a sum is known. A pixel of the padding has
bits 0 too, so it counts as +1 at first; what it added, the sum of the weight's signs there, is subtracted from the sums at the border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from ._launch import dependent_launch

_OPS = torch.ops.lowbit
_FORMAT = "int1:tensor"
# Rows of bits are multiples of so many bytes: the kernel for tensor cores copies 16 at a time.
_ROW_BYTES = {"cuda": 16}
# Scratch of a convolution, less on a CPU, whose products widen the bits in memory of their own. One row of pixels of the result is the
# least that is worked on.
_SCRATCH_BYTES = {"cpu": 8 << 20, "cuda": 64 << 20}


def _ceil_div(a: int, b: int) -> int:
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

    @property
    def is_pixel(self) -> bool:
        """A patch is a pixel as it lies in the image."""
        return self.taps == 1 and self.stride == (1, 1) and not any(self.padding)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        def positions(size: int, axis: int) -> int:
            room = size + self.padding[2 * axis] + self.padding[2 * axis + 1] - self.dilation[axis] * (self.kernel[axis] - 1) - 1
            return room // self.stride[axis] + 1

        return positions(height, 0), positions(width, 1)

    def inside(self, size: int, count: int, axis: int, device: torch.device) -> torch.Tensor:
        """[count, kernel]: 1 where a tap of an output position lies inside of an image of this size, 0 where it lies in the padding."""
        first = torch.arange(count, device=device) * self.stride[axis] - self.padding[2 * axis]
        at = first[:, None] + torch.arange(self.kernel[axis], device=device) * self.dilation[axis]
        return ((at >= 0) & (at < size)).to(torch.float64)


def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((1, 1), dtype=torch.float32, device=device)


def _bits(x: torch.Tensor) -> torch.Tensor:
    """[..., K] -> uint8 [..., ceil(K/8)]"""
    codes, _, _, _ = _OPS.quantize(x, _FORMAT, _one(x.device), None, None)
    return codes.reshape((*x.shape[:-1], codes.shape[-1]))


def weight_bits(weight: torch.Tensor) -> torch.Tensor:
    """[outputs, channels, height, width] -> uint8 [outputs, height * width * ceil(channels/8)]"""
    return _bits(weight.detach().permute(0, 2, 3, 1).contiguous()).flatten(1)


def weight_signs(bits: torch.Tensor, kernel: Sequence[int], channels: int) -> torch.Tensor:
    """The numbers -1 and +1 of weight_bits, as fp32 [outputs, channels, height, width]."""
    rows = bits.reshape(-1, _ceil_div(channels, 8))
    signs = _OPS.dequantize(rows, _one(bits.device), None, None, _FORMAT, channels, torch.float32)
    return signs.reshape(bits.shape[0], *kernel, channels).permute(0, 3, 1, 2).contiguous()


def _signs(x: torch.Tensor) -> torch.Tensor:
    return 1.0 - 2.0 * (x < 0).to(torch.float32)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[M, bytes] x [N, bytes] -> int32 [M, N]: the bits that agree less those that differ."""
    one = _one(x.device)
    return _OPS.matmul_no_grad(
        x, weight, None, one, None, None, one, x_format=_FORMAT, weight_format=_FORMAT, columns=8 * x.shape[1], dtype=torch.int32
    )


def _words(images: torch.Tensor) -> torch.Tensor:
    """The same bytes in the widest words that a pixel is whole in: fewer and larger copies."""
    for size, dtype in ((8, torch.int64), (4, torch.int32), (2, torch.int16)):
        if images.shape[-1] % size == 0:
            return images.view(dtype)
    return images


def _padded(x: torch.Tensor, groups: int, window: Window) -> torch.Tensor:
    """The bits of images [images, channels, height, width], with the padding around them, as words."""
    top, bottom, left, right = window.padding
    bits = _bits(x.unflatten(1, (groups, -1)).permute(1, 0, 3, 4, 2).contiguous())
    if any(window.padding):
        bits = functional.pad(bits, (0, 0, left, right, top, bottom))
    return _words(bits)


def _patches(images: torch.Tensor, window: Window, height: int, width: int) -> torch.Tensor:
    """A view [images, height, width, kernel height, kernel width, words] of padded images [images, ..., words]."""
    image, row, pixel, word = images.stride()
    (down, right), (below, beside) = window.stride, window.dilation
    size = (images.shape[0], height, width, *window.kernel, images.shape[-1])
    return images.as_strided(size, (image, row * down, pixel * right, row * below, pixel * beside, word))


def _as_rows(patches: torch.Tensor, row_bytes: int) -> torch.Tensor:
    """A view of patches as a matrix of bytes, each row filled up with zeros."""
    words, held = patches[0, 0, 0].numel(), row_bytes // patches.element_size()
    count = patches.shape[0] * patches.shape[1] * patches.shape[2]
    rows = patches.new_empty((count, held))
    rows[:, words:] = 0
    rows[:, :words].unflatten(0, patches.shape[:3]).unflatten(-1, patches.shape[3:]).copy_(patches)
    return rows.view(torch.uint8)


def _padding_sums(bits: torch.Tensor, channels: int, window: Window, size: Sequence[int], output: Sequence[int]) -> torch.Tensor:
    """What the padding adds while it counts as +1: the sum of the weight's signs under it, as int32 [outputs, height, width]."""
    rows = bits.reshape(-1, _ceil_div(channels, 8))
    taps = _product(rows, torch.zeros_like(rows[:1])) - (8 * rows.shape[1] - channels)
    taps = taps.reshape(bits.shape[0], *window.kernel).to(torch.float64)  # sums of integers far below 2^53: exact in any order
    down, across = (window.inside(size[axis], output[axis], axis, bits.device) for axis in (0, 1))
    image = down @ taps @ across.t()
    return (taps.sum((1, 2), keepdim=True) - image).to(torch.int32)


def _parts(images: int, rows: int, image_bytes: int, row_bytes: int, scratch: int) -> Iterator[tuple[slice, list[slice]]]:
    """Images that are worked on together, and the rows of the result that are: as many as the scratch memory holds."""
    images_at_once = max(1, scratch // max(1, image_bytes + rows * row_bytes))
    rows_at_once = rows if images_at_once > 1 else max(1, scratch // max(1, row_bytes))
    bands = [slice(first, min(first + rows_at_once, rows)) for first in range(0, rows, rows_at_once)]
    for first in range(0, images, images_at_once):
        yield slice(first, min(first + images_at_once, images)), bands


@dependent_launch(False)  # the weights of these products are made just before them
def _binary_conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The integers of a binary convolution, as int32 or fp32 (exact up to 2^24). weight: numbers [outputs, channels, height, width], or
    their bits as weight_bits makes them. padding: top, bottom, left, right."""
    window = Window.of(kernel, stride, padding, dilation)
    images, channels, size = x.shape[0], x.shape[1] // groups, x.shape[2:]
    height, width = window.output_size(*size)
    bits = weight if weight.dtype == torch.uint8 else weight_bits(weight)
    outputs = bits.shape[0] // groups
    y = torch.empty((images, bits.shape[0], height, width), dtype=dtype, device=x.device, memory_format=_memory_format(x))
    if y.numel() == 0 or channels == 0:
        return y.zero_()

    patch_bytes = bits.shape[1]
    step = _ROW_BYTES.get(x.device.type, 1)
    row_bytes = _ceil_div(patch_bytes, step) * step
    surplus: torch.Tensor | int = 8 * row_bytes - window.taps * channels
    if any(padding):
        surplus = _padding_sums(bits, channels, window, size, (height, width)) + surplus
    if row_bytes > patch_bytes:
        bits = functional.pad(bits, (0, row_bytes - patch_bytes))

    image_bytes, band_bytes = x[0].numel() * x.element_size(), width * (row_bytes + 4 * outputs)
    for some, bands in _parts(images, height, image_bytes, band_bytes, _SCRATCH_BYTES[x.device.type]):
        padded = _padded(x[some], groups, window)
        for group in range(groups):
            mine = slice(group * outputs, (group + 1) * outputs)
            patches = _patches(padded[group], window, height, width)
            for band in bands:
                if window.is_pixel and row_bytes == patch_bytes:
                    rows = padded[group, :, band].flatten(0, 2).view(torch.uint8)
                else:
                    rows = _as_rows(patches[:, band], row_bytes)
                sums = _product(rows, bits[mine]).reshape(patches.shape[0], -1, width, outputs).permute(0, 3, 1, 2)
                known = surplus[mine, band] if isinstance(surplus, torch.Tensor) else surplus
                torch.sub(sums, known, out=y[some, mine, band])
    return y


def _memory_format(x: torch.Tensor) -> torch.memory_format:
    """That of a convolution's result."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def _fake(x, weight, kernel, stride, padding, dilation, groups, dtype):
    size = Window.of(kernel, stride, padding, dilation).output_size(*x.shape[2:])
    return torch.empty((x.shape[0], weight.shape[0], *size), dtype=dtype, device=x.device, memory_format=_memory_format(x))


def _setup(ctx, inputs, output):
    x, weight, *ctx.window, ctx.groups, ctx.dtype = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx, grad):
    """The straight-through estimate: sign passes gradients on as they are where its argument lies in [-1, 1], and none elsewhere."""
    if not ctx.dtype.is_floating_point:
        raise NotImplementedError("binary_conv2d: gradients flow through floating results only")
    x, weight = ctx.saved_tensors
    kernel, stride, (top, bottom, left, right), dilation = ctx.window
    is_packed = weight.dtype == torch.uint8
    signs = weight_signs(weight, kernel, x.shape[1] // ctx.groups) if is_packed else _signs(weight)
    wants_x, wants_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1] and not is_packed
    padding = (left, right, top, bottom)
    if tuple(x.shape[2:]) == tuple(kernel) == (1, 1) and ctx.groups == 1 and not any(padding):  # a linear layer
        flat = grad.flatten(1)
        grad_x = (flat @ signs.flatten(1)).reshape(x.shape) if wants_x else None
        grad_weight = (flat.t() @ _signs(x).flatten(1)).reshape(signs.shape) if wants_weight else None
    else:
        padded = functional.pad(_signs(x), padding)
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad, padded, signs, None, stride, [0, 0], dilation, False, [0, 0], ctx.groups, [wants_x, wants_weight, False]
        )
        if wants_x:
            grad_x = grad_x[:, :, top : top + x.shape[2], left : left + x.shape[3]]
    if wants_x:
        grad_x = torch.where(x.abs() <= 1, grad_x, 0).to(x.dtype)
    if wants_weight:
        grad_weight = torch.where(weight.abs() <= 1, grad_weight, 0).to(weight.dtype)
    return grad_x, grad_weight, *[None] * 6


_NAME = "lowbit::binary_conv2d"
_SCHEMA = "(Tensor x, Tensor weight, int[] kernel, int[] stride, int[] padding, int[] dilation, int groups, ScalarType dtype) -> Tensor"
# Not through torch.library.custom_op, whose first call takes seconds: it imports the compiler.
torch.library.define(_NAME, _SCHEMA)
torch.library.impl(_NAME, ("cpu", "cuda"), _binary_conv2d)
torch.library.register_fake(_NAME, _fake)
torch.library.register_autograd(_NAME, _backward, setup_context=_setup)
