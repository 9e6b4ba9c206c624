"""Rows of products. One of few tokens has two: separate launches, and the same calls chained with dependent launch."""

import functools
from dataclasses import dataclass
from functools import partial

import torch

from . import peers, timing
from .cases import FEW_TOKENS, Case
from .ceilings import Ceilings, stream_candidates
from .library import copy_of, decoded, environment, lowbit, matmul_kernel
from .notes import note
from .results import Row

# What the tensor cores multiply, by the activation.
KINDS = {
    "bf16": "bf16", "fp16": "bf16", "int8:row": "int8", "int4:row": "int8", "uint8:row:asym": "int8", "q8_1": "int8", "fp32>q8_1": "int8",
    "fp8_e4m3:row": "fp8", "fp8_e5m2:row": "fp8", "fp8_e4m3:g128": "fp8", "int1:row": "int1",
}  # fmt: skip
LARGEST_ERROR = 0.02  # ||y - exact|| / ||exact||: y is rounded to bf16, and some kernels round decoded weights to it too
NUMBERS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
OURS, CHAINED = "lowbit", "lowbit_chain"


def operand(rows: int, columns: int, format: str, device: torch.device):
    """Of "A>B" the numbers A."""
    given = format.split(">")[0]
    numbers = torch.randn(rows, columns, device=device, dtype=NUMBERS.get(given, torch.bfloat16))
    return numbers if given in NUMBERS else lowbit.quantize(numbers, format)


@dataclass
class Weight:
    """Ready for a product; its numbers, to check one; and the bytes that it takes unpacked."""

    packed: object
    numbers: torch.Tensor
    bytes: int


@functools.lru_cache(maxsize=1)  # the rows of a weight follow each other
def make_weight(rows: int, columns: int, format: str, device: torch.device) -> Weight:
    plain = operand(rows, columns, format, device)
    packed = plain if isinstance(plain, torch.Tensor) else plain.pack()
    return Weight(packed, decoded(plain), plain.nbytes)


def _choose_kernel(x, w, x_format: str | None, forced: list[str | None]) -> tuple[str | None, str]:
    """The first of the forced kernels that can run this (None: the library chooses), and its name."""
    for name in forced:
        with environment("LOWBIT_KERNEL", name):
            chosen = matmul_kernel(x, w, out_dtype=torch.bfloat16, x_format=x_format)
        if chosen is not None:
            return name, chosen
    raise RuntimeError(f"none of these kernels can run it: {', '.join(map(str, forced))}")


def _check(y: torch.Tensor, x, weight: torch.Tensor) -> None:
    few = decoded(x)[:16]
    exact = few @ weight.t()
    error = float((y[:16].float() - exact).norm() / exact.norm())
    if not error < LARGEST_ERROR:
        raise RuntimeError(f"the result is wrong: it is off by {error:.3g} of its norm")


class Product:
    """What a row calls, over copies of tokens and weight that make every call a cold one."""

    def __init__(self, case: Case, device: torch.device, forced: list[str | None]):
        """Raises where nothing can run it, or where it runs wrong."""
        self.device = device
        self.x = operand(case.m, case.k, case.activation, device)
        self.x_format = case.activation.split(">")[1] if ">" in case.activation else None
        weight = make_weight(case.n, case.k, case.format, device)
        self.w = weight.packed
        self.moved = self.x.nbytes + weight.bytes + 2 * case.m * case.n
        self.force, self.kernel = _choose_kernel(self.x, self.w, self.x_format, forced)
        for chained in (False, True) if case.m <= FEW_TOKENS else (False,):
            _check(self.run(self.x, self.w, chained), self.x, weight.numbers)

    def run(self, x, w, chained: bool) -> torch.Tensor:
        with environment("LOWBIT_KERNEL", self.force), lowbit.dependent_launch(chained):
            return lowbit.matmul(x, w, out_dtype=torch.bfloat16, x_format=self.x_format)

    @functools.cached_property
    def copies(self) -> list[tuple]:
        """Both candidates go through the same ones: each passes over all of them, so neither leaves the other anything in the cache."""
        return [(copy_of(self.x), copy_of(self.w)) for _ in range(timing.copies(self.moved, self.device))]

    def calls(self, chained: bool) -> list[timing.Call]:
        return [partial(self.run, *pair, chained) for pair in self.copies]


def measure(case: Case, device: torch.device, timer, plan: timing.Plan, ceilings: Ceilings, forced: list[str | None]) -> list[Row]:
    """None at all, with a note, where it cannot be run."""
    try:
        product = Product(case, device, forced)
    except Exception as error:
        note(f"{case}: {error}")
        return []
    ours, streams = [timing.Candidate(OURS, partial(product.calls, False))], []
    if case.m <= FEW_TOKENS:
        ours.append(timing.Candidate(CHAINED, partial(product.calls, True)))
        streams = stream_candidates(product.moved, device)
    times = timing.measure([*ours, *streams, *peers.candidates(case, device)], timer, plan, str(case))

    operations = 2 * case.m * case.n * case.k
    floor_us = min(
        [times.us(candidate.name) for candidate in streams if candidate.name in times.rounds],
        default=ceilings.matmul_floor_us(product.moved, operations, KINDS[case.activation]),
    )
    return [
        Row(
            case.op, case.format, case.activation, case.m, case.n, case.k, product.kernel, times.us(candidate.name), floor_us,
            chain=candidate.name == CHAINED, moved=product.moved, operations=operations,
            **times.without(*(other.name for other in ours if other is not candidate)).against(candidate.name),
        )
        for candidate in ours if candidate.name in times.rounds
    ]  # fmt: skip
