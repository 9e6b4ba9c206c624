"""Binary products and convolutions: checks, scale and bias around the exact integers of _bits.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from ._bits import Window

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


def _check_numbers(name: str, argument: str, tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {argument} is a {type(tensor).__name__}; use a torch.Tensor")
    if tensor.dtype not in _FLOATS:
        raise ValueError(f"{name}: {argument} is {tensor.dtype}; use float32, float16 or bfloat16")


def _check(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scale: Scale, out_dtype: torch.dtype | None
) -> torch.dtype:
    """The type of the result."""
    _check_numbers(name, "x", x)
    _check_numbers(name, "weight", weight)
    dtype = out_dtype or x.dtype
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


def convolve(
    name: str, x: torch.Tensor, weight: torch.Tensor, outputs: int, channels: int, window: Window, groups: int, dtype: torch.dtype
) -> torch.Tensor:
    """The counts of x [channels, height, width] or [images, channels, height, width], with a weight as numbers or as bits."""
    _check_numbers(name, "x", x)
    _check_device(name, "x", x, weight)
    if x.dim() not in (3, 4):
        raise ValueError(f"{name}: x has shape {list(x.shape)}; use [images, channels, height, width] or [channels, height, width]")
    if not isinstance(groups, int) or groups < 1 or outputs % groups != 0:
        raise ValueError(f"{name}: groups = {groups} does not divide the {outputs} outputs of the weight")
    if x.shape[-3] != channels * groups:
        raise ValueError(f"{name}: x has {x.shape[-3]} channels but the weight takes {channels * groups} ({groups} groups of {channels})")
    if min(window.output_size(x.shape[-2], x.shape[-1])) < 1:
        (height, width), padding, dilation = window.kernel, list(window.padding), list(window.dilation)
        raise ValueError(
            f"{name}: a kernel of {height} x {width} (dilation {dilation}) is larger than x, "
            f"{x.shape[-2]} x {x.shape[-1]} with padding {padding} (top, bottom, left, right)"
        )
    images = x.unsqueeze(0) if x.dim() == 3 else x
    counts = torch.ops.lowbit.binary_conv2d(images, weight, window.kernel, window.stride, window.padding, window.dilation, groups, dtype)
    return counts.squeeze(0) if x.dim() == 3 else counts


def multiply(name: str, x: torch.Tensor, weight: torch.Tensor, inputs: int, dtype: torch.dtype) -> torch.Tensor:
    """The counts of x [..., inputs], with a weight as numbers [outputs, inputs] or as bits: every token is an image of one pixel."""
    _check_numbers(name, "x", x)
    _check_device(name, "x", x, weight)
    if x.dim() == 0 or x.shape[-1] != inputs:
        raise ValueError(f"{name}: x has shape {list(x.shape)} but the weight takes [..., {inputs}]")
    tokens = x.reshape(math.prod(x.shape[:-1]), inputs, 1, 1)
    filters = weight if weight.dtype == torch.uint8 else weight[:, :, None, None]
    counts = torch.ops.lowbit.binary_conv2d(tokens, filters, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, dtype)
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
    bf16. sign is -1 below 0, else +1: sign(0) = +1, as in the format int1. Pixels of the padding add nothing, as in torch's conv2d with
    zeros around sign(x); "same" and "valid" are what they are there. scale: None, a number, a tensor [outputs], or "mean": mean |weight|
    of each output, as in XNOR-Net. out_dtype: that of x unless given; int32 gives the integers themselves.

    Gradients are straight-through estimates: sign passes them on where |x| <= 1 (and |weight| <= 1), and counts as constant elsewhere.
    scale and bias have theirs too, "mean" included.
    """
    name = "binary_conv2d"
    dtype = _check(name, x, weight, bias, scale, out_dtype)
    if weight.dim() != 4:
        raise ValueError(f"{name}: weight has shape {list(weight.shape)}; use [outputs, channels / groups, height, width]")
    window = window_of(name, weight.shape[2:], stride, padding, dilation)
    factor = _scale_of(name, scale, weight)
    counts = convolve(name, x, weight, weight.shape[0], weight.shape[1], window, groups, _counted(dtype))
    return finish(counts, factor, bias, dtype, -3)


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
    dtype = _check(name, x, weight, bias, scale, out_dtype)
    if weight.dim() != 2:
        raise ValueError(f"{name}: weight has shape {list(weight.shape)}; use a matrix [outputs, inputs]")
    factor = _scale_of(name, scale, weight)
    counts = multiply(name, x, weight, weight.shape[1], _counted(dtype))
    return finish(counts, factor, bias, dtype, -1)
