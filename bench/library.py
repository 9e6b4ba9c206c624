"""The package under test: an installed one, or that of this checkout over a build tree; and what the benchmark asks it beside products."""

import contextlib
import fnmatch
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if "LOWBIT_LIBRARY_DIR" in os.environ or importlib.util.find_spec("lowbit") is None:
    os.environ.setdefault("LOWBIT_LIBRARY_DIR", str(ROOT / "build" / "release"))
    sys.path.insert(0, str(ROOT / "python"))

import lowbit  # noqa: E402
import torch  # noqa: E402


@contextlib.contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """The library reads its variables at each call."""
    before = os.environ.get(name)
    try:
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        yield
    finally:
        os.environ.pop(name, None) if before is None else os.environ.update({name: before})


def kernels_named(pattern: str | None, verb: str) -> list[str | None]:
    """The kernels of a verb that a pattern such as ampere_* names, best first. [None], the library's own choice, where it names none of
    this verb, as LOWBIT_KERNEL does."""
    if pattern is None:
        return [os.environ.get("LOWBIT_KERNEL")]
    found = [kernel for kernel in lowbit.info()["kernels"] if fnmatch.fnmatchcase(kernel["name"], pattern)]
    if not found:
        names = dict.fromkeys(kernel["name"] for kernel in lowbit.info()["kernels"])
        raise ValueError(f"--kernel {pattern}: no kernel of this build is called so; there are {', '.join(names)}")
    return [kernel["name"] for kernel in found if kernel["verb"] == verb] or [None]


def _chosen(text: str, verb: str = "") -> str | None:
    found = re.search(rf"{verb}chosen: (\w+)", text)
    return found.group(1) if found and found.group(1) != "none" else None


def matmul_kernel(x, w, **options) -> str | None:
    return _chosen(lowbit.explain(x, w, **options))


def traced_kernel(verb: str, call: Callable[[], object]) -> str | None:
    """Which kernel a verb without an explain ran: the library's trace says it, on the standard error of the process."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as trace, environment("LOWBIT_VERBOSE", "1"):
        os.dup2(trace.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        trace.seek(0)
        return _chosen(trace.read().decode(errors="replace"), f"lowbit: {verb}: ")


def copy_of(operand):
    """The same numbers elsewhere in memory."""
    if isinstance(operand, torch.Tensor):
        return operand.clone()
    kind = dict(format=operand.format, shape=operand.shape, dtype=operand.dtype)
    if operand.is_packed:
        return lowbit.QTensor.from_packed(operand.packed.clone(), operand.layout, **kind)
    return lowbit.QTensor(*[None if plane is None else plane.clone() for plane in operand.planes()], **kind)


def decoded(operand) -> torch.Tensor:
    return operand.float() if isinstance(operand, torch.Tensor) else operand.dequantize(torch.float32)
