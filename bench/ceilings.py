"""What the chip can do at most: bytes as measured here (the "stream" rows), operations as the vendor states them, or by a large product."""

import functools
from dataclasses import dataclass
from functools import partial

import torch

from . import timing
from .notes import note
from .results import Row

READ_BYTES = (8_388_608, 12_582_912, 29_360_128, 58_720_256, 117_440_512, 234_881_024, 1_073_741_824)  # the sizes of usual weights first
COPY_BYTES = (134_217_728, 268_435_456, 1_073_741_824)

# Dense operations per µs. Sustained rates are lower, since the chip is limited by power: the floor stays a floor.
STATED = {
    "H200": {"bf16": 989.4e6, "fp8": 1978.9e6, "int8": 1978.9e6, "int1": 15831e6},
    "A100": {"bf16": 311.9e6, "fp8": 311.9e6, "int8": 623.7e6, "int1": 4992e6},
}

THREADS, UNROLL = 512, 4
SOURCE = """
extern "C" __global__ void read_all(const uint4* from, unsigned* sink, int vectors) {
    const int stride = gridDim.x * blockDim.x;
    unsigned sum = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < vectors; i += 4 * stride) {
        const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride);
        const uint4 c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);
        sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < vectors; i += stride) {
        const uint4 a = __ldcs(from + i);
        sum ^= a.x ^ a.y ^ a.z ^ a.w;
    }
    if (sum == 0x9e3779b9u) *sink = sum;  // hardly ever, but the compiler cannot know: it keeps the loads
}

extern "C" __global__ void copy_all(const uint4* from, uint4* to, int vectors) {
    const int stride = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < vectors; i += 4 * stride) {
        const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride);
        const uint4 c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);
        __stcs(to + i, a), __stcs(to + i + stride, b), __stcs(to + i + 2 * stride, c), __stcs(to + i + 3 * stride, d);
    }
    for (; i < vectors; i += stride) __stcs(to + i, __ldcs(from + i));
}
"""


@dataclass(frozen=True)
class Ceilings:
    read: float  # bytes per µs
    copy: float  # bytes read plus bytes written, per µs
    operations: dict[str, float]  # per µs, by the type that the tensor cores multiply

    def matmul_floor_us(self, moved: int, operations: int, kind: str) -> float:
        return max(moved / self.read, operations / self.operations[kind])

    def conversion_floor_us(self, moved: int) -> float:
        return moved / self.copy


@functools.cache
def _kernel(name: str):
    """None where this torch or machine cannot compile one: then torch's own functions are the ceiling."""
    try:
        return torch.cuda._compile_kernel(SOURCE, name)
    except Exception as error:
        note(f"stream: {name} does not compile here, so the rate is that of torch's functions: {error}")
        return None


def _launch(kernel, source: torch.Tensor, target: torch.Tensor, most_blocks: int) -> torch.Tensor:
    vectors = source.numel() * source.element_size() // 16
    blocks = min(most_blocks, -(-vectors // (THREADS * UNROLL)))
    kernel(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=[source, target, vectors])
    return target


def _kernel_candidates(kind: str, pairs: list[tuple[torch.Tensor, torch.Tensor]], kernel) -> list[timing.Candidate]:
    """With a short-lived thread for each few vectors, and with as many threads as stay on the chip: which is faster depends on the size."""
    resident = 2 * torch.cuda.get_device_properties(pairs[0][0].device).multi_processor_count
    return [
        timing.Candidate(name, lambda blocks=blocks: [partial(_launch, kernel, *pair, blocks) for pair in pairs])
        for name, blocks in ((f"{kind}_all", 1 << 30), (f"{kind}_all_resident", resident))
    ]


def _candidates(kind: str, size: int, device: torch.device, kernel) -> list[timing.Candidate]:
    count = timing.copies(size if kind == "read" else 2 * size, device)
    sources = [torch.randn(size // 4, device=device) for _ in range(count)]
    if kind == "read":
        sink = torch.zeros(1, dtype=torch.int32, device=device)
        pairs = [(x, sink) for x in sources]
        found = [timing.Candidate("torch_sum", lambda: [x.sum for x in sources])]
    else:
        pairs = [(x, torch.empty_like(x)) for x in sources]
        found = [timing.Candidate("torch_copy", lambda: [partial(y.copy_, x) for x, y in pairs])]
    return found + (_kernel_candidates(kind, pairs, kernel) if kernel else [])


def stream_candidates(size: int, device: torch.device) -> list[timing.Candidate]:
    """Launches that read so many bytes and do nothing else."""
    size = -(-size // 16) * 16
    kernel = _kernel("read_all") if device.type == "cuda" else None
    if kernel is None:
        return []
    sources = [torch.randn(size // 4, device=device) for _ in range(timing.copies(size, device))]
    sink = torch.zeros(1, dtype=torch.int32, device=device)
    return _kernel_candidates("stream", [(x, sink) for x in sources], kernel)


def _stream_rows(device: torch.device, timer, plan: timing.Plan, sizes: dict[str, tuple[int, ...]]) -> list[Row]:
    rows = []
    for kind, of_kind in sizes.items():
        kernel = _kernel(f"{kind}_all") if device.type == "cuda" else None
        for size in of_kind:
            times = timing.measure(_candidates(kind, size, device, kernel), timer, plan, f"stream {kind} {size}")
            us = {name: times.us(name) for name in times.rounds}
            best = min(us, key=lambda name: us[name])
            moved = size if kind == "read" else 2 * size
            rows.append(Row("stream", kind, "", 1, 1, size, best, us[best], 0.0, moved=moved, **times.against(best)))
    return rows


def _measured_operations(device: torch.device, timer, plan: timing.Plan) -> float:
    size = 8192 if device.type == "cuda" else 64
    pairs = [tuple(torch.randn(size, size, device=device).bfloat16() for _ in range(2)) for _ in range(2)]
    product = timing.Candidate("torch_bf16", lambda: [partial(torch.matmul, a, b) for a, b in pairs])
    return 2 * size**3 / timing.measure([product], timer, plan, "bf16 product").us("torch_bf16")


def measure(device: torch.device, timer, plan: timing.Plan, quick: bool) -> tuple[Ceilings, list[Row]]:
    sizes = {"read": READ_BYTES, "copy": COPY_BYTES}
    if device.type != "cuda":
        sizes = {"read": (65536,), "copy": (65536,)}
    elif quick:
        sizes = {"read": READ_BYTES[-2:], "copy": COPY_BYTES[-2:]}
    rows = _stream_rows(device, timer, plan, sizes)
    rates = {kind: max(row.moved / row.us for row in rows if row.format == kind) for kind in sizes}
    for row in rows:
        row.floor_us = row.moved / rates[row.format]

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    operations = next((stated for chip, stated in STATED.items() if chip in name), None)
    if operations is None:
        measured = _measured_operations(device, timer, plan)
        operations = {"bf16": measured, "fp8": 2 * measured, "int8": 2 * measured, "int1": 16 * measured}
    return Ceilings(rates["read"], rates["copy"], operations), rows
