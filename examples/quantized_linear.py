"""A layer of a large model, 4096 inputs and 11008 outputs, in every scheme: its size, its error, the kernel that runs.

    python examples/quantized_linear.py [--device cuda]
"""

import argparse

import torch

import lowbit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
device = parser.parse_args().device

torch.manual_seed(0)
dtype = torch.bfloat16 if device == "cuda" else torch.float32
linear = torch.nn.Linear(4096, 11008, device=device, dtype=dtype)
x = torch.randn(2, 3, 4096, device=device, dtype=dtype)

# The relative error on normal numbers that each scheme may have.
bounds = {"w4a16": 0.15, "w8a16": 0.02, "w8a8": 0.03, "w4a8": 0.15, "w4a4": 0.4, "fp8": 0.08, "nf4": 0.15, "q4_0": 0.15, "w1a1": 1.0}

with torch.no_grad():
    exact = linear(x).float()
    print(f"fp {exact.shape[-1]} x {x.shape[-1]}: {linear.weight.nbytes / 1e6:.1f} MB")
    for scheme, bound in bounds.items():
        layer = lowbit.nn.QuantizedLinear.from_linear(linear, scheme)
        y = layer(x)
        error = float(torch.linalg.norm(y.float() - exact) / torch.linalg.norm(exact))
        kernel = layer.explain(x).split(";")[0].removeprefix("chosen: ")
        print(f"{scheme:6} {layer.weight.tensor.nbytes / 1e6:6.1f} MB  error {error:.4f}  {kernel}")
        assert y.shape == (2, 3, 11008) and y.dtype == dtype
        assert error < bound, f"{scheme}: {error}"
