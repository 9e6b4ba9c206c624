"""Rows of products."""

from functools import partial

import torch

from . import peers, timing
from .cases import Case
from .ceilings import Ceilings, stream_candidates
from .library import copy_of, decoded, environment, lowbit, matmul_kernel
from .notes import note
from .results import Row

# What the tensor cores multiply, by the activation.
KINDS = {"bf16": "bf16", "int8:row": "int8", "q8_1": "int8", "fp8_e4m3:row": "fp8"}
MOST_STREAMED_TOKENS = 16  # up to here a product is a read of its weight: the floor is a launch that reads as many bytes, in the same rounds
LARGEST_ERROR = 0.02  # ||y - exact|| / ||exact||: y is rounded to bf16, and some kernels round decoded weights to it too


def _operand(rows: int, columns: int, format: str, device: torch.device):
    numbers = torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
    return numbers if format == "bf16" else lowbit.quantize(numbers, format)


def _packed(weight):
    return weight if isinstance(weight, torch.Tensor) else weight.pack()


def _choose_kernel(x, w, forced: list[str | None]) -> tuple[str | None, str]:
    """The first of the forced kernels that can run this (None: the library chooses), and its name."""
    for name in forced:
        with environment("LOWBIT_KERNEL", name):
            chosen = matmul_kernel(x, w, out_dtype=torch.bfloat16)
        if chosen is not None:
            return name, chosen
    raise RuntimeError(f"none of these kernels can run it: {', '.join(map(str, forced))}")


def _check(y: torch.Tensor, x, w) -> None:
    few = decoded(x)[:16]
    exact = few @ decoded(w).t()
    error = float((y[:16].float() - exact).norm() / exact.norm())
    if not error < LARGEST_ERROR:
        raise RuntimeError(f"the result is wrong: it is off by {error:.3g} of its norm")


def measure(case: Case, device: torch.device, timer, plan: timing.Plan, ceilings: Ceilings, forced: list[str | None]) -> Row | None:
    """None, with a note, where it cannot be run."""
    try:
        x, plain = _operand(case.m, case.k, case.activation, device), _operand(case.n, case.k, case.format, device)
        moved = x.nbytes + plain.nbytes + 2 * case.m * case.n
        w = _packed(plain)
        force, kernel = _choose_kernel(x, w, forced)
        with environment("LOWBIT_KERNEL", force):
            _check(lowbit.matmul(x, w, out_dtype=torch.bfloat16), x, plain)
    except Exception as error:
        note(f"{case}: {error}")
        return None
    del plain

    def run(x, w) -> torch.Tensor:
        with environment("LOWBIT_KERNEL", force):
            return lowbit.matmul(x, w, out_dtype=torch.bfloat16)

    def make() -> list[timing.Call]:
        pairs = [(copy_of(x), copy_of(w)) for _ in range(timing.copies(moved, device))]
        return [partial(run, *pair) for pair in pairs]

    streams = stream_candidates(moved, device) if case.m <= MOST_STREAMED_TOKENS else []
    candidates = [timing.Candidate("lowbit", make), *streams, *peers.candidates(case, device)]
    times = timing.measure(candidates, timer, plan, str(case))
    if "lowbit" not in times.rounds:
        return None
    operations = 2 * case.m * case.n * case.k
    floor_us = ceilings.matmul_floor_us(moved, operations, KINDS[case.activation])
    for name in [candidate.name for candidate in streams if candidate.name in times.rounds]:
        floor_us = times.us(name) if name == streams[0].name else min(floor_us, times.us(name))
    return Row(
        case.op, case.format, case.activation, case.m, case.n, case.k, kernel, times.us("lowbit"), floor_us, moved=moved,
        operations=operations, **times.against("lowbit"),
    )  # fmt: skip
