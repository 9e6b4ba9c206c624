"""Rows of binary convolutions: m counts pixels of the result, n outputs, k inputs of a pixel. The format has kernel and stride; the
activation says what the images are (bits, or numbers whose signs are taken on the way) and their size."""

import re
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from . import timing
from .ceilings import Ceilings
from .library import lowbit, traced_kernel
from .notes import note
from .results import Row

# Channels, outputs, size of an image, kernel, stride: what BiRealNet-18 binarizes, and the 1 x 1 convolutions of ResNet-50.
LAYERS = (
    (64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1), (64, 128, 56, 3, 2), (128, 256, 28, 3, 2),
    (256, 512, 14, 3, 2), (256, 64, 56, 1, 1), (64, 256, 56, 1, 1), (512, 128, 28, 1, 1), (1024, 256, 14, 1, 1), (512, 2048, 7, 1, 1),
    (2048, 512, 7, 1, 1),
)  # fmt: skip
BATCHES = (32, 128)
IMAGES = ("bits", "fp16")


@dataclass(frozen=True)
class Convolution:
    images: str
    batch: int
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def m(self) -> int:
        result_size = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        return self.batch * result_size**2

    @property
    def k(self) -> int:
        return self.channels * self.kernel**2

    @property
    def format(self) -> str:
        return f"int1 {self.kernel}x{self.kernel}/{self.stride}"

    @property
    def activation(self) -> str:
        return f"{self.images} {self.size}x{self.size}"

    def __str__(self) -> str:
        return f"conv2d {self.format} {self.activation} {self.m}x{self.outputs}x{self.k}"


def select(quick: bool = False, only: str | None = None) -> list[Convolution]:
    found = [
        Convolution(images, batch, *layer)
        for batch in (BATCHES[-1:] if quick else BATCHES)
        for layer in (LAYERS[:4] if quick else LAYERS)
        for images in IMAGES
    ]
    return [case for case in found if only is None or re.search(only, str(case))]


def _signs(x: torch.Tensor) -> torch.Tensor:
    return 1.0 - 2.0 * (x < 0).float()


class _Layer:
    """A convolution with weights that are ready, and its images."""

    def __init__(self, case: Convolution, device: torch.device):
        last = torch.channels_last
        shape = (case.outputs, case.channels, case.kernel, case.kernel)
        self.case = case
        self.weight = torch.randn(shape, device=device, dtype=torch.float16).to(memory_format=last)
        self.bits = lowbit.sign_bits(self.weight).flatten(1)
        self.scale = self.weight.float().abs().flatten(1).mean(1)
        self.x = torch.randn(case.batch, case.channels, case.size, case.size, device=device, dtype=torch.float16).to(memory_format=last)

    def ours(self, x: torch.Tensor) -> torch.Tensor:
        case = self.case
        window = ([case.kernel] * 2, [case.stride] * 2, [case.padding] * 4, [1, 1])
        return torch.ops.lowbit.binary_conv2d_no_grad(x, self.bits, self.scale, None, *window, 1, case.channels, torch.float16)

    def cudnn(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.weight, stride=self.case.stride, padding=self.case.padding)

    def check(self, y: torch.Tensor) -> None:
        """It is exact. Products of signs and their sums are exact in fp32, whatever it is multiplied in."""
        sums = functional.conv2d(_signs(self.x), _signs(self.weight), stride=self.case.stride, padding=self.case.padding)
        if not torch.equal(y, (sums * self.scale[:, None, None]).half()):
            raise RuntimeError("the convolution is not exact")


@torch.no_grad()
def measure(case: Convolution, device: torch.device, timer, plan: timing.Plan, ceilings: Ceilings) -> Row | None:
    """Against cuDNN's convolution of fp16 images with fp16 weights, channels last, by the fastest of its algorithms. None, with a note,
    where it cannot be run."""
    torch.backends.cudnn.benchmark = True
    layer = _Layer(case, device)
    operand = lowbit.sign_bits(layer.x) if case.images == "bits" else layer.x
    try:
        kernel = traced_kernel("binary_conv2d", partial(layer.ours, operand)) or "unknown"
        layer.check(layer.ours(operand))
    except RuntimeError as error:
        note(f"{case}: {error}")
        return None
    moved = operand.nbytes + layer.bits.nbytes + case.m * case.outputs * 2
    count = timing.copies(moved, device)
    inputs, numbers = ([x.clone() for _ in range(count)] for x in (operand, layer.x))  # held as long as their graphs are replayed
    ours = timing.Candidate("lowbit", lambda: [partial(layer.ours, x) for x in inputs])
    peer = timing.Candidate("torch_cudnn", lambda: [partial(layer.cudnn, x) for x in numbers])
    times = timing.measure([ours, peer], timer, plan, str(case))
    if "lowbit" not in times.rounds:
        return None
    operations = 2 * case.m * case.outputs * case.k
    return Row(
        "conv2d", case.format, case.activation, case.m, case.outputs, case.k, kernel, times.us("lowbit"),
        ceilings.matmul_floor_us(moved, operations, "int1"), moved=moved, operations=operations, **times.against("lowbit"),
    )  # fmt: skip
