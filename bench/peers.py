"""What torch has for the same product, each over its own copies of the weight [n, k] and the tokens [m, k], random and ready to run."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from .cases import Case
from .timing import Call, Candidate, copies

# Beside torch_bf16, which every product is compared with.
OF_FORMATS = {
    ("int4:g128", "bf16"): ("torch_int4",),
    ("int8:row", "int8:row"): ("torch_int_mm",),
    ("q4_0", "q8_1"): ("torch_int_mm",),
    ("int8:row", "uint8:row:asym"): ("torch_int_mm",),
    ("int4:row", "int8:row"): ("torch_int_mm",),
    ("int4:g128", "int8:row"): ("torch_int_mm",),
    ("int4:row", "int4:row"): ("torch_int_mm",),
    ("fp8_e4m3:block128", "fp8_e4m3:g128"): ("torch_scaled_mm",),
    ("int4:row", "fp8_e4m3:row"): ("torch_scaled_mm",),
    ("int4:g128", "fp8_e4m3:row"): ("torch_scaled_mm",),
    ("fp8_e4m3:row", "fp8_e4m3:row"): ("torch_scaled_mm", "torch_scaled_mm_tensor"),
    ("fp8_e4m3:row", "fp8_e5m2:row"): ("torch_scaled_mm_tensor",),
}

MOST_TORCH_INT4 = 64  # tokens; beyond, it takes ten times as long as bf16 and more

Peer = tuple[int, Callable[[], Call]]  # bytes that a call moves; what makes one more copy


def _normal(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    return torch.randn(rows, columns, device=device, dtype=torch.bfloat16)


def _torch_bf16(case: Case, device: torch.device) -> Peer:
    def make() -> Call:
        x, w = _normal(case.m, case.k, device), _normal(case.n, case.k, device)
        return lambda: F.linear(x, w)

    return 2 * (case.m * case.k + case.n * case.k + case.m * case.n), make


def _torch_int_mm(case: Case, device: torch.device) -> Peer:
    """The raw int32 product: it has no scales. It takes more than 16 tokens."""
    tokens = max(case.m, 17)

    def make() -> Call:
        x = torch.randint(-127, 128, (tokens, case.k), device=device, dtype=torch.int8)
        w = torch.randint(-127, 128, (case.n, case.k), device=device, dtype=torch.int8).t()
        return lambda: torch._int_mm(x, w)

    return tokens * case.k + case.n * case.k + 4 * tokens * case.n, make


def _scaled_mm(case: Case, device: torch.device, by_row: bool) -> Peer:
    def make() -> Call:
        x = _normal(case.m, case.k, device).to(torch.float8_e5m2 if case.activation.startswith("fp8_e5m2") else torch.float8_e4m3fn)
        w = _normal(case.n, case.k, device).to(torch.float8_e4m3fn).t()
        x_scale = torch.rand((case.m, 1) if by_row else (), device=device)
        w_scale = torch.rand((1, case.n) if by_row else (), device=device)
        return lambda: torch._scaled_mm(x, w, x_scale, w_scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    return case.m * case.k + case.n * case.k + 2 * case.m * case.n, make


def _torch_int4(case: Case, device: torch.device) -> Peer:
    group, inner_k_tiles = 128, 8

    def make() -> Call:
        x = _normal(case.m, case.k, device)
        nibbles = torch.randint(0, 256, (case.n, case.k // 2), device=device, dtype=torch.uint8)
        w = torch._convert_weight_to_int4pack(nibbles, inner_k_tiles)
        scales_and_zeros = torch.rand(case.k // group, case.n, 2, device=device, dtype=torch.bfloat16)
        return lambda: torch._weight_int4pack_mm(x, w, group, scales_and_zeros)

    return 2 * case.m * case.k + case.n * case.k // 2 + 2 * case.m * case.n, make


def _copies_of(moved: int, make: Callable[[], Call], device: torch.device) -> list[Call]:
    return [make() for _ in range(copies(moved, device))]


MAKERS = {
    "torch_bf16": _torch_bf16,
    "torch_int_mm": _torch_int_mm,
    "torch_scaled_mm": lambda case, device: _scaled_mm(case, device, by_row=True),
    "torch_scaled_mm_tensor": lambda case, device: _scaled_mm(case, device, by_row=False),
    "torch_int4": _torch_int4,
}


def candidates(case: Case, device: torch.device) -> list[Candidate]:
    names = ["torch_bf16", *OF_FORMATS.get((case.format, case.activation), ())]
    if case.m > MOST_TORCH_INT4 and "torch_int4" in names:
        names.remove("torch_int4")
    return [Candidate(name, partial(_copies_of, *MAKERS[name](case, device), device)) for name in names]
