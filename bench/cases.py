"""Which rows there are."""

import re
from dataclasses import dataclass

MATMUL_FORMATS = (
    ("int4:g128", "bf16"), ("int8:row", "bf16"), ("int8:row", "int8:row"), ("bf16", "bf16"), ("fp8_e4m3:row", "fp8_e4m3:row"),
    ("q4_0", "q8_1"), ("nf4:g64", "bf16"),
)  # fmt: skip
CONVERSION_FORMATS = ("int8:row", "fp8_e4m3:row", "fp8_e4m3:g128", "int4:g128", "q8_1")

WEIGHTS = ((28672, 4096), (6144, 4096), (4096, 14336))  # outputs, inputs
TOKENS = (1, 16, 64, 256, 1024, 4096)
CONVERSIONS = ((16384, 8192), (16, 4096))  # tokens, inputs

QUICK_WEIGHTS = ((28672, 4096),)
QUICK_TOKENS = (16, 4096)


@dataclass(frozen=True)
class Case:
    """A conversion has as many outputs as inputs."""

    op: str
    format: str
    activation: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.op} {self.format} {self.activation} {self.m}x{self.n}x{self.k}"


def select(quick: bool = False, only: str | None = None, shapes: list[tuple[int, int, int]] | None = None) -> list[Case]:
    """In the order in which they run. shapes: m, n, k in place of the usual ones, for matmul and (m, k) for conversions."""
    weights, tokens = (QUICK_WEIGHTS, QUICK_TOKENS) if quick else (WEIGHTS, TOKENS)
    products = shapes or [(m, n, k) for n, k in weights for m in tokens]
    conversions = [(m, k) for m, _, k in shapes] if shapes else CONVERSIONS
    found = [Case("matmul", weight, x, *shape) for shape in products for weight, x in MATMUL_FORMATS]
    found += [
        Case(op, format, "bf16", m, k, k) for m, k in dict.fromkeys(conversions) for op in ("quantize", "dequantize")
        for format in CONVERSION_FORMATS
    ]  # fmt: skip
    return [case for case in found if only is None or re.search(only, str(case))]
