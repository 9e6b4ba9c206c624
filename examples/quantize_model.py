"""A small model, quantized in place; the report says what happened to each layer.

    python examples/quantize_model.py [--device cuda]
"""

import argparse

import torch
from torch import nn

import lowbit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
device = parser.parse_args().device


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocabulary: int = 1000, width: int = 512, layers: int = 4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


torch.manual_seed(0)
model = Model().to(device).eval()
tokens = torch.randint(0, 1000, (2, 16), device=device)

with torch.no_grad():
    before = model(tokens)
    report = lowbit.quantize_(model, "w4a16", exclude="lm_head")
    after = model(tokens)

print(report)
error = float(torch.linalg.norm(after - before) / torch.linalg.norm(before))
print(f"logits on {device}: relative error {error:.4f}")

assert len(report.quantized) == 8 and [layer.name for layer in report.left_alone] == ["lm_head"]
assert error < 0.2
