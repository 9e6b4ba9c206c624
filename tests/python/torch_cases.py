"""What the tests of the PyTorch package share: the package itself (or the reason to skip), the devices, tables of formats, bounds."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _find_package():
    """The package of the checkout over the libraries of the release build, unless one is installed or named."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:  # no origin: the folder torch/ of this checkout, which Python takes for a package
        pytest.skip("torch is not installed here (scripts/setup.sh python gets it from PyPI)", allow_module_level=True)
    if "LOWBIT_LIBRARY_DIR" not in os.environ and importlib.util.find_spec("lowbit") is None:
        build = ROOT / "build" / "release"
        if not (build / "liblowbit_torch.so").exists():
            pytest.skip(f"the op library was not built: {build}/liblowbit_torch.so (cmake -DLOWBIT_TORCH=ON)", allow_module_level=True)
        os.environ["LOWBIT_LIBRARY_DIR"] = str(build)
    sys.path.insert(0, str(ROOT / "python"))


_find_package()

import lowbit  # noqa: E402
import torch  # noqa: E402


def _no_cuda():
    """Why nothing can run on a GPU here, or None."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    return lowbit.info()["cuda"].get("problem") or None


NO_CUDA = _no_cuda()
needs_cuda = pytest.mark.skipif(NO_CUDA is not None, reason=str(NO_CUDA))
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
on_devices = pytest.mark.parametrize("device", DEVICES)

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
GGML = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"]
GROUPED = [
    "fp16", "bf16", "int8:tensor", "int8:row", "int8:g64", "uint8:row:asym", "uint8:g32:asym", "int4:row", "int4:g128", "int4:g32",
    "int4:tensor", "uint4:g32:asym", "uint4:g128:asym", "int1:row", "int1:g64", "fp8_e4m3:row", "fp8_e4m3:block128", "fp8_e4m3:g128",
    "fp8_e5m2:tensor", "nf4:g64", "nf4:row", "mxfp4", "mxfp8", "nvfp4", "int4:g128:scale_bf16", "int8:block32x64",
]  # fmt: skip
FORMATS = GROUPED + GGML

# ||decoded - x|| / ||x|| on normal numbers may be this large: half a step of the element over the largest of its group, with room.
ERRORS = {
    "fp16": 0.0005, "bf16": 0.004, "int8": 0.02, "uint8": 0.02, "int4": 0.25, "uint4": 0.14, "int1": 0.65, "fp8_e4m3": 0.04,
    "fp8_e5m2": 0.08, "nf4": 0.15, "mxfp4": 0.14, "mxfp8": 0.04, "nvfp4": 0.12, "q4_0": 0.11, "q4_1": 0.1, "q5_0": 0.06, "q5_1": 0.05,
    "q8_0": 0.01, "q8_1": 0.01, "q2_k": 0.4, "q3_k": 0.25, "q4_k": 0.1, "q5_k": 0.05, "q6_k": 0.03, "iq4_nl": 0.1,
}  # fmt: skip


def error_bound(format):
    return ERRORS[format.split(":")[0]]


def normal(*shape, dtype=torch.float32, device="cpu", seed=0):
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(seed + sum(size * (7919 + i) for i, size in enumerate(shape)))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def same_bits(a, b):
    """Equal to the bit, NaNs included, wherever they lie."""
    if a is None or b is None:
        return a is None and b is None
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def assert_same_planes(found, wanted):
    for name in ("codes", "scales", "zeros", "tensor_scale"):
        assert same_bits(getattr(found, name), getattr(wanted, name)), f"{name} of {found} differ"


def assert_product(y, x, w, rounding=0.0):
    """y is x . w^T in float64, within the bound of docs/formats.md: (K + 8) sum |x w| times the unit of one fp32 addition, and one unit in
    the last place of y. Tensor cores cut off where an addition rounds. rounding: of a weight's values, where a kernel decodes them to 16
    bits."""
    addition = 2.0**-24 if y.device.type == "cpu" else 2.0**-23
    x, w = x.double().cpu(), w.double().cpu()
    exact, sums = x @ w.t(), x.abs() @ w.abs().t()
    bound = ((x.shape[-1] + 8) * addition + rounding) * sums + torch.finfo(y.dtype).eps * exact.abs() + torch.finfo(y.dtype).tiny
    error = (y.double().cpu() - exact).abs()
    assert y.shape == exact.shape
    assert (error <= bound).all(), f"off by {(error - bound).max():.3g} more than the bound at {int((error - bound).argmax())}"


def signs(x):
    """-1 below 0, else +1; torch.sign(0) is 0."""
    return torch.where(x < 0, -1.0, 1.0).to(torch.float64).cpu()


def exact_conv2d(x, weight, stride=1, padding=0, dilation=1, groups=1):
    if 0 in weight.shape or 0 in x.shape:  # torch refuses some of these
        image, filters = torch.zeros(1, 1, *x.shape[2:]), torch.zeros(1, 1, *weight.shape[2:])
        size = torch.nn.functional.conv2d(image, filters, None, stride, padding, dilation).shape[2:]
        return torch.zeros(x.shape[0], weight.shape[0], *size, dtype=torch.float64)
    return torch.nn.functional.conv2d(signs(x), signs(weight), None, stride, padding, dilation, groups)
