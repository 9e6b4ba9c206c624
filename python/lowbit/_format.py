"""Formats as Python sees them: the library parses the string; what its planes look like is said here once more, since the sizes that
torch.compile asks for may be symbols, which C cannot take. tests/python/test_torch_formats.py holds both to each other."""

from dataclasses import dataclass
from functools import cache

import torch

from . import _c

_ELEMENTS = (
    "fp32", "fp16", "bf16", "int32", "int8", "uint8", "int4", "uint4", "int1", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "nf4", "e8m0",
)  # fmt: skip
_GRANULARITIES = ("none", "tensor", "row", "group", "block")
_FIRST_GGML = 32
_CODES_DTYPES = {"int8": torch.int8, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_SCALES_DTYPES = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e8m0": torch.float8_e8m0fnu, "fp8_e4m3": torch.float8_e4m3fn,
}  # fmt: skip


def _ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


@dataclass(frozen=True)
class PlaneShapes:
    """(0, 0) and (0,) where a format has no such plane."""

    codes: tuple[int, int]
    scales: tuple[int, int]
    zeros: tuple[int, int]
    tensor_scale: tuple[int]


@dataclass(frozen=True)
class Format:
    name: str  # as the library prints it
    element: str
    granularity: str
    asymmetric: bool
    group_columns: int
    group_rows: int
    block_values: int  # a code's bytes come in blocks of so many values
    block_bytes: int
    codes_dtype: torch.dtype
    scales_dtype: torch.dtype
    has_tensor_scale: bool

    @property
    def is_ggml(self) -> bool:
        return self.element not in _ELEMENTS

    def planes(self, rows: int, columns: int) -> PlaneShapes:
        if self.is_ggml and columns % self.block_values != 0:
            padded = _ceil_div(columns, self.block_values) * self.block_values
            raise ValueError(
                f"{self.name}: stores blocks of {self.block_values} values, which do not divide K = {columns}; pad K to {padded}"
            )
        scales = {
            "none": (0, 0),
            "tensor": (1, 1),
            "row": (rows, 1),
            "group": (rows, _ceil_div(columns, max(self.group_columns, 1))),
            "block": (_ceil_div(rows, max(self.group_rows, 1)), _ceil_div(columns, max(self.group_columns, 1))),
        }[self.granularity]
        return PlaneShapes(
            codes=(rows, _ceil_div(columns * self.block_bytes, self.block_values)),
            scales=scales,
            zeros=scales if self.asymmetric else (0, 0),
            tensor_scale=(1 if self.has_tensor_scale else 0,),
        )


def _block(parsed: _c.Format) -> tuple[int, int]:
    """Values and bytes of the smallest run of codes that fills whole bytes."""
    for values in (8, 32, 256):
        try:
            return values, _c.measure(parsed, 1, values).row_bytes
        except ValueError:  # a GGML type with larger blocks
            continue
    raise AssertionError("unreachable: no block of codes has more than 256 values")


@cache
def parse(text: str) -> Format:
    parsed = _c.parse(text)
    name = _c.print_format(parsed)
    ggml = parsed.element >= _FIRST_GGML
    element = name if ggml else _ELEMENTS[parsed.element]
    values, size = _block(parsed)
    return Format(
        name=name,
        element=element,
        granularity=_GRANULARITIES[parsed.granularity],
        asymmetric=bool(parsed.asymmetric),
        group_columns=parsed.group_columns,
        group_rows=parsed.group_rows,
        block_values=values,
        block_bytes=size,
        codes_dtype=_CODES_DTYPES.get(element, torch.uint8),
        scales_dtype=torch.float32 if ggml else _SCALES_DTYPES[_ELEMENTS[parsed.scale]],
        has_tensor_scale=not ggml and _ELEMENTS[parsed.scale] == "fp8_e4m3",
    )


# The layouts of lowbit_packed_layout.
PLAIN, ROWS, TILES = 0, 1, 2


@cache
def _pack_layout(name: str, device_type: str, device_index: int) -> int:
    return _c.pack_layout(_c.parse(name), device_type, device_index)


def pack_layout(name: str, device: torch.device) -> int:
    """What pack gives on a device."""
    if device.type == "cuda":
        return _pack_layout(name, "cuda", torch.cuda.current_device() if device.index is None else device.index)
    return ROWS


def gains_by_packing(name: str, device: torch.device) -> bool:
    """False where the kernels of a device find in the planes all that they read."""
    # Packed rows of int8 and int1 have their sums beside them, which products with zero points, and of signs, need.
    return device.type == "cuda" and (pack_layout(name, device) != ROWS or parse(name).element in ("int8", "int1"))
