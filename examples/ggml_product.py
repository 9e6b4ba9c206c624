"""q4_0 x q8_1, as llama.cpp multiplies: a weight in 4-bit blocks, activations in 8-bit ones, and how far that is from fp32.

    python examples/ggml_product.py [--device cuda]
"""

import argparse

import torch

import lowbit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
device = parser.parse_args().device

torch.manual_seed(0)
M, N, K = 4096, 4, 4096  # rows of the weight, rows of the activation, what both sum over
weight = torch.randn(M, K, device=device)
activation = torch.randn(N, K, device=device)

weight_q = lowbit.quantize_q4_0(weight)  # uint8 [M, K/32, 18]
activation_q = lowbit.quantize_q8_1(activation)  # uint8 [N, K/32, 36]
product = lowbit.gemm_q4_0_q8_1(weight_q, activation_q, M, N, K)  # fp32 [M, N]


def nmse(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The mean square of the error, in units of the mean square of what is right."""
    return float(((found - exact) ** 2).mean() / (exact**2).mean())


exact = weight @ activation.t()
decoded = lowbit.dequantize_q4_0(weight_q, K) @ activation.t()
print(f"q4_0 x q8_1, {M} x {N} x {K} on {device}: {weight_q.numel() / 1e6:.1f} MB instead of {4 * weight.numel() / 1e6:.1f} MB")
print(f"NMSE against fp32: {nmse(product, exact):.5f}; of the rounded weight alone: {nmse(decoded, exact):.5f}")

assert product.shape == (M, N)
assert nmse(product, exact) < 0.02
assert nmse(product, decoded) < 0.001
