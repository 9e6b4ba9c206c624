"""How a call is timed.

Every candidate of a row (ours and the peers) gets its own copies of its buffers, more than four times the L2 cache in all, and one CUDA
graph that calls it on one copy after the other, so that each call finds its data cold. The graphs are replayed in rounds, in random order
within a round: the chip is limited by power and drifts, and what drifts is the same for all candidates of a round.
"""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .notes import note

Call = Callable[[], object]
Sample = Callable[[], float]  # runs a candidate once over its copies; the µs of one call


@dataclass
class Candidate:
    name: str
    make: Callable[[], list[Call]]  # fills its buffers; one call for each copy of them


@dataclass(frozen=True)
class Plan:
    """How long a row may take."""

    rounds: int = 11
    fewest_rounds: int = 3
    row_seconds: float = 2.0
    graph_us: float = 1500.0  # a graph repeats its copies until it lasts about this long

    def for_few_tokens(self) -> "Plan":
        """There are hundreds of these rows, and their calls are short."""
        return Plan(min(self.rounds, 9), min(self.rounds, 5), row_seconds=0.12, graph_us=500.0)

    def for_many_tokens(self) -> "Plan":
        """As many rows, of longer calls. Graphs last, so that the chip is kept as busy as by a model's layers, which follow each other: with
        graphs of 1.5 ms and pauses between them the same products take up to a sixth less time."""
        return Plan(min(self.rounds, 7), min(self.rounds, 3), row_seconds=0.4, graph_us=6000.0)


@dataclass
class Times:
    """µs of one call in each round, by candidate."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def us(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """How many times as long as the base a candidate takes."""
        return statistics.median(a / b for a, b in zip(self.rounds[name], self.rounds[base], strict=True))

    def without(self, *names: str) -> "Times":
        return Times({name: rounds for name, rounds in self.rounds.items() if name not in names})

    def against(self, base: str) -> dict[str, dict[str, float]]:
        """What a row says of the others: their times, and how they compare."""
        others = [name for name in self.rounds if name != base]
        return {"peers": {name: self.us(name) for name in others}, "ratios": {name: self.ratio(name, base) for name in others}}


def copies(call_bytes: int, device: torch.device) -> int:
    """How many copies of what a call reads and writes make every call a cold one."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 4096
    return max(2, -(-4 * cache // max(call_bytes, 1)) + 1)


class CpuTimer:
    """For the tests of the benchmark: no graphs, nothing cold."""

    def prepare(self, calls: list[Call], plan: Plan) -> Sample:
        for call in calls:
            call()

        def sample() -> float:
            start = time.perf_counter()
            for call in calls:
                call()
            return (time.perf_counter() - start) * 1e6 / len(calls)

        return sample


class GpuTimer:
    # The device spins so long before each sample that the host has queued the whole of it: no launch gap is timed.
    HEAD_START_CYCLES = 1_000_000
    HEAD_START_CYCLES_PER_CALL = 1_500

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def _call_us(self, work: Call, calls: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(self.HEAD_START_CYCLES + calls * self.HEAD_START_CYCLES_PER_CALL)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / calls

    def prepare(self, calls: list[Call], plan: Plan) -> Sample:
        torch.cuda.synchronize()  # the buffers were filled on another stream
        with torch.cuda.stream(self.stream):
            calls[0]()  # what is compiled or loaded at a first call
            few = calls[:8]
            pilot_us = max(self._call_us(lambda: [call() for call in few], len(few)), 1.0)
            repeats = max(1, round(plan.graph_us / (pilot_us * len(calls))))
            graph = self._capture(calls, repeats)
            graph.replay()
        self.stream.synchronize()
        count = repeats * len(calls)

        def sample() -> float:
            with torch.cuda.stream(self.stream):
                return self._call_us(graph.replay, count)

        return sample

    def _capture(self, calls: list[Call], repeats: int) -> torch.cuda.CUDAGraph:
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        results: deque[object] = deque(maxlen=len(calls))  # held, so that the next call writes elsewhere
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(repeats):
                for call in calls:
                    results.append(call())
        finally:
            graph.capture_end()
        return graph


def measure(candidates: list[Candidate], timer: CpuTimer | GpuTimer, plan: Plan, what: str) -> Times:
    """A candidate that raises is left out, with a note."""
    samples: dict[str, Sample] = {}
    row_us = 0.0
    for candidate in candidates:
        try:
            sample = timer.prepare(candidate.make(), plan)
            start = time.perf_counter()
            sample()
            row_us += (time.perf_counter() - start) * 1e6
            samples[candidate.name] = sample
        except Exception as error:
            note(f"{what}: {candidate.name} is left out: {error}")
    rounds = int(min(plan.rounds, max(plan.fewest_rounds, plan.row_seconds * 1e6 / max(row_us, 1.0))))
    times = Times({name: [] for name in samples})
    order = list(samples)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            times.rounds[name].append(samples[name]())
    return times
