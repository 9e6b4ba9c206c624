"""How the kernels of a stream follow each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from ctypes import c_int32

from ._load import OP_LIBRARY

_swap = OP_LIBRARY.lowbit_torch_swap_dependent_launch
_swap.argtypes, _swap.restype = [c_int32], c_int32


@contextlib.contextmanager
def dependent_launch(enabled: bool = True) -> Iterator[None]:
    """Products of few tokens may begin before the kernel in front of them in the stream has ended, and read their weights meanwhile.

        with lowbit.dependent_launch(), torch.cuda.graph(graph):
            y = model(x)

    A weight does not depend on the kernel before, so it can be on its way while that one finishes; everything else a product reads or
    writes waits for it, so results are the same bits. The caller promises that weights are ready: between the last kernel of the stream
    that writes a weight (quantize, pack, a copy) and the first product that reads it stands a synchronization, or a kernel that was
    launched without dependent launch. Where a chip or kernel cannot do it, and on the CPU, nothing changes.

    It holds for this thread until the end of the block; blocks nest, and enabled=False switches it off inside. A CUDA graph keeps what held
    when it was captured. A function under torch.compile is called inside of the block; the block does not belong into the function.
    """
    before = _swap(enabled)
    try:
        yield
    finally:
        _swap(before)
