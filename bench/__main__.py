"""python -m bench [--quick] [--only REGEX] [--kernel NAME] [--output FILE]"""

import argparse
import gc
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

from . import block, cases, ceilings, conversions, convolutions, matmul, results, timing
from .library import ROOT, kernels_named, lowbit, torch
from .notes import note


def _shape(text: str) -> tuple[int, int, int]:
    if not re.fullmatch(r"\d+x\d+x\d+", text):
        raise argparse.ArgumentTypeError(f"{text}; use MxNxK, such as 16x28672x4096")
    m, n, k = map(int, text.split("x"))
    return m, n, k


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Times lowbit on a GPU against the floor and against torch.")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rounds, nothing compiled")
    parser.add_argument("--only", metavar="REGEX", help='rows whose "op format activation mxnxk" it matches')
    parser.add_argument("--shape", metavar="MxNxK", type=_shape, action="append", help="in place of the usual shapes; may be repeated")
    parser.add_argument("--kernel", metavar="NAME", help="forces a kernel, or the best of those that a pattern such as 'ampere_*' names")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="default: bench/results/<device>.json, or build/bench/ for a partial run"
    )
    parser.add_argument("--commit", help="the commit to write down, where git is not at hand")
    parser.add_argument("--device", default="cuda", help="cpu tries the benchmark itself; its times mean nothing")
    return parser.parse_args(given)


def _versions(device: torch.device) -> dict[str, str]:
    found = {"lowbit": lowbit.__version__, "torch": torch.__version__, "python": platform.python_version()}
    if device.type == "cuda":
        found |= {"cuda": str(torch.version.cuda), "driver": _driver()}
    return found


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def _default_output(arguments: argparse.Namespace, device_name: str) -> Path:
    """A partial run must not take the place of the whole one."""
    partial = arguments.quick or arguments.only or arguments.shape or arguments.kernel or arguments.device == "cpu"
    return ROOT / ("build/bench" if partial else "bench/results") / results.file_name(device_name)


class Session:
    """What all rows of a run share."""

    def __init__(self, arguments: argparse.Namespace, device: torch.device):
        """Raises ValueError where an argument is wrong."""
        self.device, self.on_gpu, self.quick = device, device.type == "cuda", arguments.quick
        self.few_streams = arguments.quick or arguments.only is not None
        self.forced = {verb: kernels_named(arguments.kernel, verb) for verb in ("matmul", "quantize", "dequantize")}
        try:
            self.cases = cases.select(arguments.quick, arguments.only, arguments.shape)
            self.convolutions = convolutions.select(arguments.quick, arguments.only)
            wants_block = re.search(arguments.only or "", block.NAME) is not None
        except re.error as error:
            raise ValueError(f"--only {arguments.only}: {error}") from error
        usual = self.on_gpu and not arguments.shape and not arguments.kernel
        self.with_block = wants_block and usual
        if not usual:
            self.convolutions = []
        self.timer = timing.GpuTimer() if self.on_gpu else timing.CpuTimer()
        self.plan = timing.Plan(rounds=5, row_seconds=0.8) if self.quick or not self.on_gpu else timing.Plan()

    def _rows(self, case: cases.Case, rates: ceilings.Ceilings) -> list[results.Row]:
        """None at all where they cannot be had."""
        plan = self.plan if case.op != "matmul" else self.plan.for_few_tokens() if case.m <= cases.FEW_TOKENS else self.plan.for_many_tokens()
        common = (case, self.device, self.timer, plan, rates, self.forced[case.op])
        if case.op == "matmul":
            return matmul.measure(*common)
        row = conversions.measure(*common, compiled=self.on_gpu and not self.quick)
        return [] if row is None else [row]

    def _clean_up(self) -> None:
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def run(self) -> tuple[list[results.Row], int]:
        """Measures and prints; and how many rows could not be had."""
        rates, rows = ceilings.measure(self.device, self.timer, self.plan, self.few_streams)
        print(results.HEADER)
        for row in rows:
            print(results.line(row), flush=True)
        missing = 0
        for case in self.cases:
            found = self._rows(case, rates)
            self._clean_up()
            missing += not found
            for row in found:
                rows.append(row)
                print(results.line(row), flush=True)
        for convolution in self.convolutions:
            row = convolutions.measure(convolution, self.device, self.timer, self.plan.for_many_tokens(), rates)
            self._clean_up()
            missing += row is None
            if row is not None:
                rows.append(row)
                print(results.line(row), flush=True)
        if self.with_block:
            matmul.make_weight.cache_clear()
            print(block.measure(self.device, self.timer, self.plan, rates))
            self._clean_up()
        return rows, missing


@torch.no_grad()
def main(given: list[str] | None = None) -> int:
    arguments = _arguments(given)
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        note("torch sees no CUDA device here")
        return 2
    try:
        session = Session(arguments, device)
    except ValueError as error:
        note(str(error))
        return 2
    if device.type == "cpu":
        torch.backends.mkldnn.set_flags(False)  # its bf16 product dies on some virtual machines that claim AMX
    gc.disable()  # collected between rows alone: a CUDA graph must not be destroyed while another is captured
    gc.freeze()
    start = time.perf_counter()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    rows, missing = session.run()
    output = arguments.output or _default_output(arguments, name)
    results.write(results.document(rows, arguments.commit or results.commit(ROOT), name, _versions(device)), output)
    print(f"{len(rows)} rows in {time.perf_counter() - start:.0f} s: {output}" + (f"; {missing} left out" if missing else ""))
    # A kernel that was forced may refuse; without that, every row must be there.
    return 1 if missing and arguments.kernel is None else 0


if __name__ == "__main__":
    sys.exit(main())
