"""An int8 product with scales: quantize two matrices, multiply their codes, and read the result back.

    python examples/int8_product.py [--device cuda]
"""

import argparse

import torch

import lowbit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
device = parser.parse_args().device

torch.manual_seed(0)
A = torch.randn(64, 512, device=device)
B = torch.randn(512, 256, device=device)

a, scale_a = lowbit.quantize_tensor(A)  # int8, and one scale each
b, scale_b = lowbit.quantize_tensor(B)

C = lowbit.int8_matmul(a, b)  # int32: the exact product of the codes
from_codes = lowbit.dequantize_tensor(C, scale_a * scale_b)
scaled = lowbit.int8_matmul(a, b, scale_a, scale_b, out_dtype=torch.float32)  # the same, scaled on the way out

exact = A @ B
error = torch.linalg.norm(from_codes - exact) / torch.linalg.norm(exact)
print(f"int8 {tuple(A.shape)} x {tuple(B.shape)} on {device}: relative error {error:.4f}")
print(lowbit.explain(a, b.t(), out_dtype=torch.int32).split(";")[0])

assert torch.equal(C.cpu().long(), a.cpu().long() @ b.cpu().long())
assert torch.allclose(from_codes, scaled, rtol=1e-5)
assert error < 0.02
