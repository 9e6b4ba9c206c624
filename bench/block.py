"""The linears of one block of a model, one after the other with dependent launch, against the sum of their floors. Printed, not a row."""

from dataclasses import replace
from functools import partial

import torch

from . import timing
from .ceilings import Ceilings, stream_candidates
from .library import copy_of, lowbit
from .matmul import operand

NAME = "llama-3-8b block"
FORMAT = "int4:g128"
LINEARS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))  # outputs, inputs: q k v, o, gate and up, down


class Block:
    """One token through the linears. Each reads the first results of the one before, as many as it has inputs, so that nothing stands
    between two products and each must wait for the one before."""

    def __init__(self, linears: tuple[tuple[int, int], ...], device: torch.device):
        self.device, self.linears = device, linears
        self.weights = [lowbit.quantize(operand(n, k, "bf16", device) / k**0.5, FORMAT) for n, k in linears]
        self.moved = [weight.nbytes + 2 * (n + k) for weight, (n, k) in zip(self.weights, linears)]

    def run(self, x: torch.Tensor, weights: list) -> torch.Tensor:
        with lowbit.dependent_launch():
            for weight in weights:
                x = lowbit.matmul(x[:, : weight.shape[1]], weight, out_dtype=torch.bfloat16)
        return x

    def calls(self) -> list[timing.Call]:
        x = operand(1, self.linears[0][1], "bf16", self.device)
        packed = [weight.pack() for weight in self.weights]
        return [
            partial(self.run, copy_of(x), [copy_of(weight) for weight in packed])
            for _ in range(timing.copies(sum(self.moved), self.device))
        ]

    def streams(self) -> list[list[timing.Candidate]]:
        """For each linear the launches that only read as many bytes."""
        return [
            [replace(candidate, name=f"{candidate.name} {index}") for candidate in stream_candidates(moved, self.device)]
            for index, moved in enumerate(self.moved)
        ]


def measure(device: torch.device, timer, plan: timing.Plan, ceilings: Ceilings, linears: tuple[tuple[int, int], ...] = LINEARS) -> str:
    """The line to print."""
    block = Block(linears, device)
    streams = block.streams()
    chained = timing.Candidate("lowbit_chain", block.calls)
    times = timing.measure([chained, *sum(streams, [])], timer, plan, NAME)
    what = f"{NAME} ({', '.join(f'{n}x{k}' for n, k in linears)}; {FORMAT} x bf16, 1 token, chained)"
    if "lowbit_chain" not in times.rounds:
        return f"{what}: could not be run"
    floor_us = 0.0
    for (n, k), moved, candidates in zip(linears, block.moved, streams):
        measured = [times.us(candidate.name) for candidate in candidates if candidate.name in times.rounds]
        floor_us += min(measured, default=ceilings.matmul_floor_us(moved, 2 * n * k, "bf16"))
    us = times.us("lowbit_chain")
    return f"{what}: {us:.2f} us, {us / floor_us:.2f} x the sum of the floors, {floor_us:.2f} us"
