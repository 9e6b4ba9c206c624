"""Which rows there are."""

import re
from dataclasses import dataclass

FEW_TOKENS = 16  # up to here a product is a read of its weight

# Weight, activation. A>B: numbers A that the product quantizes to B on the way.
FEW_FORMATS = (
    ("int4:g128", "bf16"), ("int4:g32", "bf16"), ("nf4:g64", "bf16"), ("mxfp4", "bf16"), ("int8:row", "bf16"), ("int8:row", "int8:row"),
    ("fp8_e4m3:row", "bf16"), ("q4_0", "q8_1"), ("q4_0", "fp32>q8_1"), ("q8_0", "q8_1"), ("q8_0", "fp32>q8_1"), ("q4_k", "bf16"),
    ("bf16", "bf16"),
)  # fmt: skip
MANY_FORMATS = (
    ("int4:g128", "bf16"), ("int4:g32", "bf16"), ("uint4:g128:asym", "bf16"), ("nf4:g64", "bf16"), ("mxfp4", "bf16"), ("nvfp4", "bf16"),
    ("int8:row", "bf16"), ("fp8_e4m3:row", "bf16"), ("q4_0", "bf16"), ("q8_0", "bf16"), ("q4_k", "bf16"), ("q6_k", "bf16"), ("bf16", "bf16"),
    ("int4:g128", "fp16"), ("fp16", "fp16"), ("int8:row", "int8:row"), ("int8:row", "uint8:row:asym"), ("fp8_e4m3:row", "fp8_e4m3:row"),
    ("fp8_e4m3:row", "fp8_e5m2:row"), ("fp8_e4m3:block128", "fp8_e4m3:g128"), ("int4:row", "int8:row"), ("int4:g128", "int8:row"),
    ("int4:row", "int4:row"), ("int4:row", "fp8_e4m3:row"), ("int4:g128", "fp8_e4m3:row"), ("q4_0", "q8_1"), ("int1:row", "int1:row"),
)  # fmt: skip
CONVERSION_FORMATS = ("int8:row", "fp8_e4m3:row", "fp8_e4m3:g128", "int4:g128", "q8_1")

# Outputs, inputs
FEW_WEIGHTS = ((28672, 4096), (8192, 28672), (57344, 8192), (4096, 14336), (6144, 4096), (4096, 4096))
MANY_WEIGHTS = ((28672, 4096), (6144, 4096), (4096, 14336), (8192, 28672))
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
CONVERSIONS = ((16384, 8192), (16, 4096))  # tokens, inputs

LARGE_BITS = 16384  # tokens, outputs, inputs: as many bits as keep the tensor core busy

QUICK_WEIGHTS = ((28672, 4096),)
QUICK_TOKENS = (1, 16, 4096)


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


def _usual_products(quick: bool) -> list[Case]:
    """The tokens of one weight follow each other, so that it is quantized once."""
    tokens = QUICK_TOKENS if quick else TOKENS
    few = [m for m in tokens if m <= FEW_TOKENS]
    many = [m for m in tokens if m > FEW_TOKENS]
    kinds = (
        (QUICK_WEIGHTS if quick else FEW_WEIGHTS, FEW_FORMATS, few),
        (QUICK_WEIGHTS if quick else MANY_WEIGHTS, MANY_FORMATS, many),
    )
    return [
        Case("matmul", weight, x, m, n, k)
        for weights, formats, counts in kinds
        for n, k in weights
        for weight, x in formats
        for m in counts
    ]


def _products_of(shapes: list[tuple[int, int, int]]) -> list[Case]:
    return [
        Case("matmul", weight, x, *shape) for shape in shapes for weight, x in (FEW_FORMATS if shape[0] <= FEW_TOKENS else MANY_FORMATS)
    ]


def select(quick: bool = False, only: str | None = None, shapes: list[tuple[int, int, int]] | None = None) -> list[Case]:
    """In the order in which they run. shapes: m, n, k in place of the usual ones, for matmul and (m, k) for conversions."""
    conversions = [(m, k) for m, _, k in shapes] if shapes else CONVERSIONS
    found = _products_of(shapes) if shapes else _usual_products(quick)
    if not shapes and not quick:
        found.append(Case("matmul", "int1:row", "int1:row", LARGE_BITS, LARGE_BITS, LARGE_BITS))
    found += [
        Case(op, format, "bf16", m, k, k) for m, k in dict.fromkeys(conversions) for op in ("quantize", "dequantize")
        for format in CONVERSION_FORMATS
    ]  # fmt: skip
    return [case for case in found if only is None or re.search(only, str(case))]
