"""Products."""

from __future__ import annotations

import torch

from ._autograd import product
from ._format import PLAIN
from ._qtensor import QTensor


def _arguments(x, w, bias, activation, out_dtype, gate, x_format, row_scale, column_scale, scale, output_scale):
    """The arguments of torch.ops.lowbit.matmul, and the shape of the result before its last dimension."""
    named = dict(
        row_scale=row_scale, column_scale=column_scale, scale=scale, output_scale=output_scale,
        activation=activation or ("silu" if gate else "none"), gate=gate, dtype=out_dtype, quantize_x=x_format or "",
    )  # fmt: skip
    for name, operand in (("x", x), ("w", w)):
        if not isinstance(operand, (torch.Tensor, QTensor)):
            raise TypeError(f"matmul: {name} is a {type(operand).__name__}; use a torch.Tensor or a QTensor")
    if len(w.shape) != 2:
        raise ValueError(f"matmul: w has shape {list(w.shape)}; use a matrix [outputs, inputs]")
    if len(x.shape) > 0 and x.shape[-1] != w.shape[1]:
        raise ValueError(f"matmul: w has k = {w.shape[1]} but x has k = {x.shape[-1]}")

    if isinstance(x, QTensor):
        codes, scales, zeros, tensor_scale = x.planes()
        named.update(x_format=x.format, x_scales=scales, x_zeros=zeros, x_tensor_scale=tensor_scale, columns=x.shape[-1])
        if out_dtype is None:
            named["dtype"] = x.dtype
        x_operand = codes
    else:
        x_operand = x
    if isinstance(w, QTensor):
        named.update(weight_format=w.format, columns=w.shape[1])
        if w.layout != PLAIN:
            named.update(weight_layout=w.layout, rows=w.shape[0])
            w_operand = w.packed
        else:
            w_operand, scales, zeros, tensor_scale = w.planes()
            named.update(weight_scales=scales, weight_zeros=zeros, weight_tensor_scale=tensor_scale)
    else:
        w_operand = w
    return (x_operand, w_operand, bias), named


def matmul(
    x: torch.Tensor | QTensor,
    w: torch.Tensor | QTensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    *,
    gate: bool = False,
    x_format: str | None = None,
    row_scale: torch.Tensor | None = None,
    column_scale: torch.Tensor | None = None,
    scale: float = 1.0,
    output_scale: float = 1.0,
) -> torch.Tensor:
    """activation(scale * row_scale[m] * column_scale[n] * (x [..., K] . w [N, K]^T) + bias [N]), as [..., N].

    x and w are tensors or QTensors. activation: relu, gelu, gelu_tanh, silu. out_dtype: that of x unless given; int32 is the raw product of
    integer codes, int8 is round(result / output_scale). x_format: x is quantized to this format on the way ("int8:row").

    gate: w is [2N, K], gate and up of a gated layer one upon the other, and the result is activation(first N) * (last N), as [..., N]; bias
    and column_scale are [2N]. The activation is silu unless given ("none" for the plain product of both).
    """
    operands, named = _arguments(x, w, bias, activation, out_dtype, gate, x_format, row_scale, column_scale, scale, output_scale)
    result = product(*operands, **named)
    if isinstance(x, QTensor):
        return result.reshape((*x.shape[:-1], result.shape[-1]))
    return result


def explain(
    x: torch.Tensor | QTensor,
    w: torch.Tensor | QTensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    *,
    gate: bool = False,
    x_format: str | None = None,
    row_scale: torch.Tensor | None = None,
    column_scale: torch.Tensor | None = None,
    scale: float = 1.0,
    output_scale: float = 1.0,
) -> str:
    """Which kernel matmul would run for these arguments, and why the others were passed over."""
    operands, named = _arguments(x, w, bias, activation, out_dtype, gate, x_format, row_scale, column_scale, scale, output_scale)
    return torch.ops.lowbit.explain(*operands, **named)
