"""Rows of quantize and dequantize, bf16 to a format and back."""

from functools import partial

import torch

from . import timing
from .cases import Case
from .ceilings import Ceilings
from .library import copy_of, environment, lowbit, traced_kernel
from .notes import note
from .results import Row


def _int8_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = x.float()
    scale = numbers.abs().amax(dim=1, keepdim=True) / 127
    return (numbers / scale).round().clamp(-127, 127).to(torch.int8), scale


def _fp8_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = x.float()
    scale = numbers.abs().amax(dim=1, keepdim=True) / 448
    return (numbers / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def _fp8_groups(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = _fp8_rows(x.reshape(-1, 128))
    return codes.reshape(x.shape), scales.reshape(x.shape[0], -1)


# What a user of torch would write; torch.compile makes one kernel of it.
COMPILED = {"int8:row": _int8_rows, "fp8_e4m3:row": _fp8_rows, "fp8_e4m3:g128": _fp8_groups}


def _peers(case: Case, inputs: list, compiled: bool) -> list[timing.Candidate]:
    function = COMPILED.get(case.format)
    if not compiled or case.op != "quantize" or function is None:
        return []

    def make() -> list[timing.Call]:
        fast = torch.compile(function, fullgraph=True, dynamic=False)
        return [partial(fast, x) for x in inputs]

    return [timing.Candidate("torch_compile", make)]


def _run(case: Case, force: str | None, operand):
    with environment("LOWBIT_KERNEL", force):
        return lowbit.quantize(operand, case.format) if case.op == "quantize" else operand.dequantize(torch.bfloat16)


def _choose_kernel(case: Case, operand, forced: list[str | None]) -> tuple[str | None, str]:
    """The first of the forced kernels that can run this (None: the library chooses), and its name."""
    refusals = []
    for name in forced:
        try:
            return name, traced_kernel(case.op, partial(_run, case, name, operand)) or "unknown"
        except RuntimeError as error:
            refusals.append(str(error))
    raise RuntimeError("; ".join(refusals))


def measure(
    case: Case, device: torch.device, timer, plan: timing.Plan, ceilings: Ceilings, forced: list[str | None], compiled: bool
) -> Row | None:
    """None, with a note, where it cannot be run. compiled: against torch.compile too."""
    try:
        numbers = torch.randn(case.m, case.k, device=device, dtype=torch.bfloat16)
        quantized = lowbit.quantize(numbers, case.format)
        operand = numbers if case.op == "quantize" else quantized
        force, kernel = _choose_kernel(case, operand, forced)
    except Exception as error:
        note(f"{case}: {error}")
        return None
    moved = numbers.nbytes + quantized.nbytes
    inputs = [copy_of(operand) for _ in range(timing.copies(moved, device))]
    ours = timing.Candidate("lowbit", lambda: [partial(_run, case, force, x) for x in inputs])
    times = timing.measure([ours, *_peers(case, inputs, compiled)], timer, plan, str(case))
    if "lowbit" not in times.rounds:
        return None
    return Row(
        case.op, case.format, case.activation, case.m, case.n, case.k, kernel, times.us("lowbit"), ceilings.conversion_floor_us(moved),
        moved=moved, **times.against("lowbit"),
    )  # fmt: skip
