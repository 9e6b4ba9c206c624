"""Gradients of matmul: with respect to x, through the weight's decoded values; to a plain weight; to the bias. Quantizing x on the way
counts as doing nothing to it (the straight-through estimate)."""

import torch
from torch.nn import functional

_OPS = torch.ops.lowbit
ACTIVATIONS = {
    "none": lambda y: y,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    "silu": functional.silu,
}


def _setup(ctx, inputs, keyword_only_inputs, output):
    x, weight, bias, *_ = inputs
    weight_scales, weight_zeros, weight_tensor_scale, row_scale, column_scale = inputs[6:11]
    ctx.named = keyword_only_inputs
    needs_x = ctx.needs_input_grad[1] or keyword_only_inputs["activation"] != "none" or keyword_only_inputs["gate"]
    ctx.has_bias = bias is not None
    ctx.x_dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(
        x if needs_x else None, bias if needs_x else None, weight, weight_scales, weight_zeros, weight_tensor_scale, row_scale, column_scale
    )


def _decoded(weight, planes, named, dtype):
    if not named["weight_format"]:
        return weight.to(dtype)
    if named["weight_layout"]:
        shape = (named["rows"], named["columns"])
        weight, *planes = _OPS.unpack(weight, named["weight_format"], *shape, named["weight_layout"])
    return _OPS.dequantize(weight, *planes, named["weight_format"], named["columns"], dtype)


def _through_activation(grad, before, activation):
    if activation == "none":
        return grad
    if activation == "relu":
        return torch.where(before > 0, grad, 0)
    if activation == "silu":
        return torch.ops.aten.silu_backward(grad, before)
    return torch.ops.aten.gelu_backward(grad, before, approximate="tanh" if activation == "gelu_tanh" else "none")


def _through_epilogue(grad, x, bias, weight, planes, row_scale, column_scale, named):
    """The gradient of what the activation and the gate were given, one for each row of the weight."""
    activation, gate = named["activation"], named["gate"]
    if activation == "none" and not gate:
        return grad
    plainly = {**named, "activation": "none", "gate": False, "dtype": grad.dtype}
    before = _OPS.matmul_no_grad(x, weight, bias, None, None, None, *planes, row_scale, column_scale, **plainly)
    if not gate:
        return _through_activation(grad, before, activation)
    first, second = before.chunk(2, -1)
    return torch.cat((_through_activation(grad * second, first, activation), grad * ACTIVATIONS[activation](first)), -1)


def _backward(ctx, grad):
    x, bias, weight, *planes, row_scale, column_scale = ctx.saved_tensors
    named = ctx.named
    if named["x_format"] or not grad.is_floating_point():
        raise NotImplementedError("matmul: gradients flow through floating x and results only")
    grad = _through_epilogue(grad, x, bias, weight, planes, row_scale, column_scale, named)
    grad_bias = None
    if ctx.has_bias and ctx.needs_input_grad[2]:
        grad_bias = grad.reshape(-1, grad.shape[-1]).sum(0, dtype=torch.float32).to(ctx.bias_dtype)
    # What stands between the product and its result: y = scale * row_scale * column_scale * product + bias.
    if named["scale"] != 1.0:
        grad = grad * named["scale"]
    if column_scale is not None:
        grad = grad * column_scale.to(grad.dtype)
    if row_scale is not None:
        grad = grad * row_scale.to(grad.dtype).reshape(*grad.shape[:-1], 1)
    grad_x = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_x = (grad @ _decoded(weight, planes, named, grad.dtype)).to(ctx.x_dtype)
    if ctx.needs_input_grad[1]:
        flat = grad.reshape(-1, grad.shape[-1])
        grad_weight = (flat.t() @ x.reshape(-1, x.shape[-1]).to(grad.dtype)).to(weight.dtype)
    return (grad_x, grad_weight, grad_bias, *[None] * 8)


torch.library.register_autograd("lowbit::matmul", _backward, setup_context=_setup)


def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *planes, **named) -> torch.Tensor:
    """torch.ops.lowbit.matmul, without the way through Python that its gradients take where none are wanted."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        return _OPS.matmul(x, weight, bias, *planes, **named)
    return _OPS.matmul_no_grad(x, weight, bias, *planes, **named)
