"""Binary products and convolutions: checks, and scale and bias of the exact integers that _bits.py and the op library give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from ._bits import Window, ceil_div, is_bits

_OPS = torch.ops.lowbit
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)

Pair = int | Sequence[int]
Padding = int | Sequence[int] | Literal["valid", "same"]
Scale = torch.Tensor | float | Literal["mean"] | None


def mean_scale(weight: torch.Tensor) -> torch.Tensor:
    """mean |w| of each output, as fp32 [outputs]: the scale that brings signs nearest to a weight (XNOR-Net)."""
    return weight.abs().flatten(1).mean(1, dtype=torch.float64).to(torch.float32)


def _scale_of(name: str, scale: Scale, weight: torch.Tensor) -> torch.Tensor | float | None:
    """None, one number, or one for each output."""
    if isinstance(scale, str):
        if scale != "mean":
            raise ValueError(f'{name}: scale = {scale!r}; use None, "mean", a number, or a tensor of {weight.shape[0]} numbers')
        return mean_scale(weight)
    if isinstance(scale, torch.Tensor):
        _check_vector(name, "scale", scale, weight)
        return scale.to(torch.float32)
    return scale


def finish(
    counts: torch.Tensor, scale: torch.Tensor | float | None, bias: torch.Tensor | None, dtype: torch.dtype, axis: int
) -> torch.Tensor:
    """scale * counts + bias, each step in fp32, rounded once to the type of the result. axis: that of the outputs, from the end."""
    shape = [-1] + [1] * (-1 - axis)
    if scale is not None:
        counts = counts * (scale.reshape(shape) if isinstance(scale, torch.Tensor) else scale)
    if bias is not None:
        counts = counts + bias.to(torch.float32).reshape(shape)
    return counts.to(dtype)


def _check_vector(name: str, argument: str, vector: torch.Tensor, weight: torch.Tensor) -> None:
    if vector.dim() != 1 or vector.shape[0] != weight.shape[0]:
        raise ValueError(f"{name}: {argument} has shape {list(vector.shape)}, but the weight has {weight.shape[0]} outputs")
    _check_device(name, argument, vector, weight)


def _check_device(name: str, argument: str, tensor: torch.Tensor, weight: torch.Tensor) -> None:
    if tensor.device != weight.device:
        raise ValueError(f"{name}: {argument} is on {tensor.device} but weight is on {weight.device}; move one of them")


def _check_numbers(name: str, argument: str, tensor: torch.Tensor, or_bits: bool = False) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {argument} is a {type(tensor).__name__}; use a torch.Tensor")
    if tensor.dtype not in _FLOATS and not (or_bits and is_bits(tensor)):
        raise ValueError(f"{name}: {argument} is {tensor.dtype}; use float32, float16 or bfloat16")


def result_dtype(x: torch.Tensor) -> torch.dtype:
    """Where no other is asked for."""
    return torch.float32 if is_bits(x) else x.dtype


def _check(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scale: Scale, out_dtype: torch.dtype | None, or_bits: bool
) -> torch.dtype:
    """The type of the result."""
    _check_numbers(name, "x", x, or_bits)
    _check_numbers(name, "weight", weight)
    dtype = out_dtype or result_dtype(x)
    if bias is not None:
        _check_vector(name, "bias", bias, weight)
    if dtype not in (*_FLOATS, torch.int32):
        raise ValueError(f"{name}: out_dtype = {dtype}; use float32, float16, bfloat16 or int32")
    if dtype == torch.int32 and (bias is not None or scale is not None):
        raise ValueError(f"{name}: out_dtype = torch.int32 gives the counts as they are, without scale and bias")
    return dtype


def pair(name: str, argument: str, value: Pair, least: int) -> tuple[int, int]:
    numbers = (value, value) if isinstance(value, int) else tuple(value)
    if len(numbers) != 2 or any(not isinstance(number, int) or number < least for number in numbers):
        raise ValueError(f"{name}: {argument} = {value}; use an integer of at least {least}, or two of them (height, width)")
    return numbers[0], numbers[1]


def window_of(name: str, kernel: Pair, stride: Pair, padding: Padding, dilation: Pair) -> Window:
    height, width = pair(name, "kernel_size", kernel, 1)
    steps, spread = pair(name, "stride", stride, 1), pair(name, "dilation", dilation, 1)
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise ValueError(f'{name}: padding = {padding!r}; use "valid", "same", or integers')
        if padding == "same" and steps != (1, 1):
            raise ValueError(f'{name}: padding = "same" goes with stride 1, not {list(steps)}')
        below, beside = (spread[0] * (height - 1), spread[1] * (width - 1)) if padding == "same" else (0, 0)
        around = (below // 2, below - below // 2, beside // 2, beside - beside // 2)
    else:
        down, across = pair(name, "padding", padding, 0)
        around = (down, down, across, across)
    return Window((height, width), steps, around, spread)


def _check_groups(name: str, groups: int, count: int, what: str) -> None:
    if not isinstance(groups, int) or groups < 1 or count % groups != 0:
        raise ValueError(f"{name}: groups = {groups} does not divide the {count} {what}")


def sign_bits(x: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """The signs of images [images, channels, height, width], or without images, as bits: what binary_conv2d and BinaryConv2d take in place
    of x, for images that several convolutions read, or that are kept.

    uint8 [images, height, width, groups * ceil(channels / groups / 8)]: the channels of a group lie innermost, 8 to a byte, the first in
    the lowest bit, which is 1 for -1 (below 0) and 0 for +1, and zeros fill up a byte. groups: that of the convolution.
    """
    name = "sign_bits"
    _check_numbers(name, "x", x)
    if x.dim() not in (3, 4):
        raise ValueError(f"{name}: x has shape {list(x.shape)}; use [images, channels, height, width] or [channels, height, width]")
    _check_groups(name, groups, x.shape[-3], "channels of x")
    x = x.detach()
    return _OPS.sign_bits(x.unsqueeze(0), groups).squeeze(0) if x.dim() == 3 else _OPS.sign_bits(x, groups)


def _wants_gradients(*tensors: torch.Tensor | float | None) -> bool:
    return torch.is_grad_enabled() and any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def convolve(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    outputs: int,
    channels: int,
    window: Window,
    groups: int,
    scale: torch.Tensor | float | None,
    bias: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """scale * counts + bias of x [channels, height, width], [images, channels, height, width], or bits of these, with a weight as numbers
    or as bits."""
    _check_numbers(name, "x", x, or_bits=True)
    _check_device(name, "x", x, weight)
    if x.dim() not in (3, 4):
        shapes = "[images, channels, height, width] or [channels, height, width]"
        raise ValueError(f"{name}: x has shape {list(x.shape)}; use {'the bits of ' if is_bits(x) else ''}{shapes}")
    _check_groups(name, groups, outputs, "outputs of the weight")
    if is_bits(x):
        wanted = groups * ceil_div(channels, 8)
        if x.shape[-1] != wanted:
            raise ValueError(
                f"{name}: x has {x.shape[-1]} bytes for each pixel but the weight takes {wanted} ({groups} groups of {channels} channels)"
            )
    elif x.shape[-3] != channels * groups:
        raise ValueError(f"{name}: x has {x.shape[-3]} channels but the weight takes {channels * groups} ({groups} groups of {channels})")
    height, width = x.shape[-3:-1] if is_bits(x) else x.shape[-2:]
    if min(window.output_size(height, width)) < 1:
        kernel, padding, dilation = window.kernel, list(window.padding), list(window.dilation)
        raise ValueError(
            f"{name}: a kernel of {kernel[0]} x {kernel[1]} (dilation {dilation}) is larger than x, "
            f"{height} x {width} with padding {padding} (top, bottom, left, right)"
        )
    images = x.unsqueeze(0) if x.dim() == 3 else x
    how = (window.kernel, window.stride, window.padding, window.dilation, groups, channels)
    if _wants_gradients(x, weight, scale, bias):
        # Scale and bias have gradients by being torch's own steps.
        y = finish(_OPS.binary_conv2d(images, weight, None, None, *how, _counted(dtype)), scale, bias, dtype, -3)
    else:
        if scale is not None and not isinstance(scale, torch.Tensor):
            scale = torch.full((outputs,), scale, dtype=torch.float32, device=x.device)
        if bias is not None and bias.dtype not in _FLOATS:
            bias = bias.to(torch.float32)
        y = _OPS.binary_conv2d_no_grad(images, weight, scale, bias, *how, dtype)
    return y.squeeze(0) if x.dim() == 3 else y


def multiply(name: str, x: torch.Tensor, weight: torch.Tensor, inputs: int, dtype: torch.dtype) -> torch.Tensor:
    """The counts of x [..., inputs], with a weight as numbers [outputs, inputs] or as bits."""
    _check_numbers(name, "x", x)
    _check_device(name, "x", x, weight)
    if x.dim() == 0 or x.shape[-1] != inputs:
        raise ValueError(f"{name}: x has shape {list(x.shape)} but the weight takes [..., {inputs}]")
    counts = _OPS.binary_linear(x.reshape(math.prod(x.shape[:-1]), inputs), weight, dtype)
    return counts.reshape((*x.shape[:-1], weight.shape[0]))


def _counted(out_dtype: torch.dtype) -> torch.dtype:
    return torch.int32 if out_dtype == torch.int32 else torch.float32


def binary_conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: Scale = None,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """scale * conv2d(sign(x), sign(weight)) + bias, where the convolution is an exact integer: K - 2 * (bits that differ).

    x: [images, channels, height, width], or without images; weight: [outputs, channels / groups, height, width]; both in fp32, fp16 or
    bf16. x may also be the bits that sign_bits makes of it. sign is -1 below 0, else +1: sign(0) = +1, as in the format int1. Pixels of
    the padding add nothing, as in torch's conv2d with zeros around sign(x); "same" and "valid" are what they are there. scale: None, a
    number, a tensor [outputs], or "mean": mean |weight| of each output, as in XNOR-Net. out_dtype: that of x unless given, fp32 for bits;
    int32 gives the integers themselves.

    Gradients are straight-through estimates: sign passes them on where |x| <= 1 (and |weight| <= 1), and counts as constant elsewhere.
    scale and bias have theirs too, "mean" included; bits have none.
    """
    name = "binary_conv2d"
    dtype = _check(name, x, weight, bias, scale, out_dtype, or_bits=True)
    if weight.dim() != 4:
        raise ValueError(f"{name}: weight has shape {list(weight.shape)}; use [outputs, channels / groups, height, width]")
    window = window_of(name, weight.shape[2:], stride, padding, dilation)
    factor = _scale_of(name, scale, weight)
    return convolve(name, x, weight, weight.shape[0], weight.shape[1], window, groups, factor, bias, dtype)


def binary_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: Scale = None,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """scale * (sign(x) [..., K] . sign(weight) [N, K]^T) + bias, as binary_conv2d: the product is an exact integer, sign(0) is +1,
    gradients are straight-through estimates."""
    name = "binary_linear"
    dtype = _check(name, x, weight, bias, scale, out_dtype, or_bits=False)
    if weight.dim() != 2:
        raise ValueError(f"{name}: weight has shape {list(weight.shape)}; use a matrix [outputs, inputs]")
    factor = _scale_of(name, scale, weight)
    counts = multiply(name, x, weight, weight.shape[1], _counted(dtype))
    return finish(counts, factor, bias, dtype, -1)
