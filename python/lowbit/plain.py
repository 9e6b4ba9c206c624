"""The functions that people know from other libraries, with their names and shapes: plain tensors in, plain tensors out."""

from __future__ import annotations

import torch

from ._matmul import matmul
from ._qtensor import QTensor

Q4_0_BYTES, Q8_1_BYTES, BLOCK = 18, 36, 32


def quantize_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x of any shape -> int8 of that shape, and the one scale: x is about q * scale."""
    codes, scale, _, _ = torch.ops.lowbit.quantize(x.detach().reshape(1, -1), "int8:tensor")
    return codes.reshape(x.shape), scale.reshape(())


def dequantize_tensor(q: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
    """q * scale in fp32, for the int8 of quantize_tensor and for the int32 products of int8_matmul and int4_matmul."""
    return q.to(torch.float32) * scale


def _scaled(
    x: torch.Tensor | QTensor,
    w: torch.Tensor | QTensor,
    scale_a: float | torch.Tensor,
    scale_b: float | torch.Tensor,
    scale_c: float | torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """A product with the scales that its caller gave: numbers, tensors of one number (which stay on their device), or one per row of A
    (scale_a) and one per column of B (scale_b)."""
    if out_dtype == torch.int32:
        return matmul(x, w, out_dtype=out_dtype)
    factor, row_scale, column_scale = 1.0, None, None
    for name, scale, vector in (("scale_a", scale_a, "rows"), ("scale_b", scale_b, "columns"), ("scale_c", scale_c, "")):
        if not isinstance(scale, torch.Tensor):
            factor *= float(scale)
        elif scale.numel() == 1:
            single = scale.to(torch.float32).reshape(1)
            column_scale = single if column_scale is None else column_scale * single
        elif vector == "rows" and scale.numel() == x.shape[0]:
            row_scale = scale.to(torch.float32).reshape(-1)
        elif vector == "columns" and scale.numel() == w.shape[0]:
            full = scale.to(torch.float32).reshape(-1)
            column_scale = full if column_scale is None else column_scale * full
        else:
            raise ValueError(f"{name} has {scale.numel()} numbers; use one" + (f", or one for each of the {vector}" if vector else ""))
    if column_scale is not None:
        column_scale = column_scale.expand(w.shape[0]).contiguous()
    return matmul(x, w, out_dtype=out_dtype, scale=factor, row_scale=row_scale, column_scale=column_scale)


def int8_matmul(
    A: torch.Tensor,
    B: torch.Tensor,
    scale_a: float | torch.Tensor = 1,
    scale_b: float | torch.Tensor = 1,
    scale_c: float | torch.Tensor = 1,
    out_dtype: torch.dtype = torch.int32,
) -> torch.Tensor:
    """A [M, K] . B [K, N], both int8. int32: the raw product, to be read with dequantize_tensor(C, scale_a * scale_b); a float type:
    scaled by scale_a * scale_b * scale_c."""
    for name, operand in (("A", A), ("B", B)):
        if operand.dtype != torch.int8 or operand.dim() != 2:
            raise ValueError(f"int8_matmul: {name} is {operand.dtype} {list(operand.shape)}; use an int8 matrix")
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"int8_matmul: A has K = {A.shape[1]} but B has K = {B.shape[0]}")
    return _scaled(A, B.t(), scale_a, scale_b, scale_c, out_dtype)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """alpha * a [M, K] . b [K, N] + beta * c [M, N], a new tensor: fp32, fp16 or bf16 each, sums in fp32, rounded once to out_dtype. Any
    strides: b may be the .t() of a matrix [N, K]. c has out_dtype's type, or any of the three where that is float32; with beta = 0 it is
    not read. No gradients."""
    return torch.ops.lowbit.gemm(a, b, c, dtype=out_dtype, alpha=alpha, beta=beta)


def convert(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in another type: float32, float16, bfloat16, float8_e4m3fn and float8_e5m2 into each other, contiguous. Rounds half to even; beyond
    the largest number of a float8 type stands that number (torch's .to() makes it NaN or infinity); NaN stays NaN. No gradients."""
    return torch.ops.lowbit.convert(x, dtype)


def _int4(codes: torch.Tensor, k: int) -> QTensor:
    one = torch.ones((1, 1), dtype=torch.float32, device=codes.device)
    return QTensor(codes.contiguous().view(torch.uint8), one, format="int4:tensor", shape=(codes.shape[0], k))


def int4_matmul(
    A: torch.Tensor,
    B: torch.Tensor,
    scale_a: float | torch.Tensor = 1,
    scale_b: float | torch.Tensor = 1,
    scale_c: float | torch.Tensor = 1,
    out_dtype: torch.dtype = torch.int32,
    K: int | None = None,
) -> torch.Tensor:
    """As int8_matmul, over signed 4-bit numbers, two in a byte along K, low nibble first: A [M, (K+1)/2], B [(K+1)/2, N]. K is twice the
    bytes unless given; with an odd K the last high nibble is ignored."""
    for name, operand in (("A", A), ("B", B)):
        if operand.dtype not in (torch.uint8, torch.int8) or operand.dim() != 2:
            raise ValueError(f"int4_matmul: {name} is {operand.dtype} {list(operand.shape)}; use a matrix of uint8")
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"int4_matmul: A has {A.shape[1]} bytes along K but B has {B.shape[0]}")
    if K is None:
        K = 2 * A.shape[1]
    elif (K + 1) // 2 != A.shape[1]:
        raise ValueError(f"int4_matmul: K = {K} takes {(K + 1) // 2} bytes, but A and B have {A.shape[1]}")
    return _scaled(_int4(A, K), _int4(B.t(), K), scale_a, scale_b, scale_c, out_dtype)


def _quantize_blocks(x: torch.Tensor, format: str, block_bytes: int) -> torch.Tensor:
    codes, _, _, _ = torch.ops.lowbit.quantize(x.detach(), format)
    return codes.reshape((*x.shape[:-1], x.shape[-1] // BLOCK, block_bytes))


def quantize_q4_0(x: torch.Tensor) -> torch.Tensor:
    """[..., K] -> uint8 [..., K/32, 18]: the bytes that a GGUF file has."""
    return _quantize_blocks(x, "q4_0", Q4_0_BYTES)


def quantize_q8_1(x: torch.Tensor) -> torch.Tensor:
    """[..., K] -> uint8 [..., K/32, 36]"""
    return _quantize_blocks(x, "q8_1", Q8_1_BYTES)


def _blocks(name: str, q: torch.Tensor, K: int, block_bytes: int, argument: str) -> torch.Tensor:
    """[..., K/32, bytes] as rows of codes."""
    if K % BLOCK != 0:
        raise ValueError(f"{name}: K = {K} is not a multiple of {BLOCK}")
    if q.dtype != torch.uint8 or q.dim() < 2 or tuple(q.shape[-2:]) != (K // BLOCK, block_bytes):
        wanted = f"uint8 [..., {K // BLOCK}, {block_bytes}]"
        raise ValueError(f"{name}: {argument} is {q.dtype} {list(q.shape)}; with K = {K} it is {wanted}")
    return q.reshape((*q.shape[:-2], K // BLOCK * block_bytes))


def dequantize_q4_0(q: torch.Tensor, K: int) -> torch.Tensor:
    """uint8 [..., K/32, 18] -> fp32 [..., K]"""
    codes = _blocks("dequantize_q4_0", q, K, Q4_0_BYTES, "q")
    return torch.ops.lowbit.dequantize(codes, None, None, None, "q4_0", K, torch.float32)


def gemm_q4_0_q8_1(weight_q: torch.Tensor, activation_q: torch.Tensor, M: int, N: int, K: int) -> torch.Tensor:
    """W [M, K] . A [N, K]^T in fp32, as [M, N]: weight_q [M, K/32, 18] from quantize_q4_0, activation_q [N, K/32, 36] from quantize_q8_1. M
    counts the rows of the weight, N those of the activation."""
    weight = _blocks("gemm_q4_0_q8_1", weight_q, K, Q4_0_BYTES, "weight_q")
    activation = _blocks("gemm_q4_0_q8_1", activation_q, K, Q8_1_BYTES, "activation_q")
    for name, argument, found, wanted in (("M", "weight_q", weight, M), ("N", "activation_q", activation, N)):
        if found.dim() != 2 or found.shape[0] != wanted:
            raise ValueError(f"gemm_q4_0_q8_1: {argument} has {list(found.shape[:-1])} rows, but {name} = {wanted}")
    product = torch.ops.lowbit.matmul_no_grad(activation, weight, x_format="q8_1", weight_format="q4_0", columns=K)
    return product.t().contiguous()
