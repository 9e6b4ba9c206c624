"""QTensor: a tensor in a format of lowbit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from . import _autograd, _fake  # noqa: F401  (what completes the ops)
from ._format import PLAIN, gains_by_packing, pack_layout, parse

# codes, scales, zeros, tensor_scale; None where a format has no such plane
Planes = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]

# What the planes are called in files and state_dicts; the lowbit program uses the same names.
PLANE_NAMES = {"codes": "codes", "scales": "scales", "zeros": "zero_points", "tensor_scale": "tensor_scale"}


def _rows(shape: Sequence[int]) -> int:
    rows = 1
    for size in shape[:-1]:
        rows = rows * size
    return rows



class QTensor:
    """A tensor of any shape, quantized along its last dimension: codes, and the scales, zero points and tensor scale that its format has
    (None where it has none), in the layout of docs/formats.md. Made by lowbit.quantize, or from planes that exist.

    pack() gives the same numbers in the order that the kernels of its device read; such a QTensor holds these bytes alone, and its planes
    are unpacked when asked for.
    """

    def __init__(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor | None = None,
        zeros: torch.Tensor | None = None,
        tensor_scale: torch.Tensor | None = None,
        *,
        format: str,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ):
        self._planes: Planes | None = (codes, scales, zeros, tensor_scale)
        self._packed: torch.Tensor | None = None
        self.layout = PLAIN
        self.format = format
        self.shape = tuple(shape)
        self.dtype = dtype  # of the numbers that were quantized; what dequantize() and matmul give back unless told otherwise
        if not torch.compiler.is_compiling():
            self._check()

    def _check(self) -> None:
        parsed = parse(self.format)
        self.format = parsed.name
        wanted = parsed.planes(_rows(self.shape), self.shape[-1])
        for name, dtype in (
            ("codes", parsed.codes_dtype), ("scales", parsed.scales_dtype), ("zeros", torch.uint8), ("tensor_scale", torch.float32)
        ):  # fmt: skip
            plane, shape = getattr(self, name), getattr(wanted, name)
            if plane is None and 0 in shape:
                continue
            if plane is None or tuple(plane.shape) != shape or plane.dtype != dtype:
                found = "missing" if plane is None else f"{plane.dtype} {list(plane.shape)}"
                raise ValueError(f"QTensor: {name} is {found}, but {self.format} of {list(self.shape)} takes {dtype} {list(shape)}")
            if plane.device != self.device:
                raise ValueError(f"QTensor: {name} is on {plane.device} but codes is on {self.device}; move one of them")

    # What it holds

    @property
    def codes(self) -> torch.Tensor:
        return self.planes()[0]

    @property
    def scales(self) -> torch.Tensor | None:
        return self.planes()[1]

    @property
    def zeros(self) -> torch.Tensor | None:
        return self.planes()[2]

    @property
    def tensor_scale(self) -> torch.Tensor | None:
        return self.planes()[3]

    @property
    def packed(self) -> torch.Tensor | None:
        """The bytes of a packed QTensor."""
        return self._packed

    @property
    def is_packed(self) -> bool:
        return self._packed is not None

    @property
    def device(self) -> torch.device:
        return self._held()[0].device

    @property
    def nbytes(self) -> int:
        return sum(plane.numel() * plane.element_size() for plane in self._held())

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return _rows(self.shape) * self.shape[-1]

    def planes(self) -> Planes:
        """codes, scales, zeros, tensor_scale."""
        if self._planes is not None:
            return self._planes
        return self.unpack().planes()

    def _held(self) -> list[torch.Tensor]:
        if self._packed is not None:
            return [self._packed]
        return [plane for plane in self.planes() if plane is not None]

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        packed = ", packed" if self.is_packed else ""
        return f"QTensor({self.format}, {shape}, {_size(self.nbytes)}, {self.device}{packed})"

    # What can be done with it

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        planes = self.planes()
        result = torch.ops.lowbit.dequantize(*planes, self.format, self.shape[-1], dtype or self.dtype)
        return result.reshape(self.shape)

    def pack(self) -> QTensor:
        """Rearranged once for the kernels of its device. Where these read the planes as they are, that is the QTensor itself."""
        if self.is_packed or len(self.shape) != 2 or not gains_by_packing(self.format, self.device):
            return self
        data = torch.ops.lowbit.pack(*self.planes(), self.format, self.shape[-1])
        return self._packed_as(data, pack_layout(self.format, self.device))

    def unpack(self) -> QTensor:
        """With planes again, as quantize made them."""
        if self._packed is None:
            return self
        rows, columns = _rows(self.shape), self.shape[-1]
        return from_op(torch.ops.lowbit.unpack(self._packed, self.format, rows, columns, self.layout), self.format, self.shape, self.dtype)

    @staticmethod
    def from_packed(
        data: torch.Tensor, layout: int, *, format: str, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> QTensor:
        """Over the bytes that pack() made, with its layout."""
        result = QTensor.__new__(QTensor)
        result._planes, result._packed, result.layout = None, data, layout
        result.format, result.shape, result.dtype = format, tuple(shape), dtype
        return result

    def _packed_as(self, data: torch.Tensor, layout: int) -> QTensor:
        return QTensor.from_packed(data, layout, format=self.format, shape=self.shape, dtype=self.dtype)

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> QTensor:
        """On another device. A packed QTensor stays packed where the other device reads the same order, else it is unpacked."""
        if isinstance(device, torch.dtype):
            raise TypeError(f"QTensor.to: takes a device; for numbers in {device} use dequantize({device})")
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if self._packed is not None:
            if device.type == "cuda" and gains_by_packing(self.format, device) and pack_layout(self.format, device) == self.layout:
                return self._packed_as(self._packed.to(device, non_blocking=non_blocking), self.layout)
            return self.unpack().to(device, non_blocking)
        codes, *others = self.planes()
        moved = [None if plane is None else plane.to(device, non_blocking=non_blocking) for plane in others]
        return QTensor(codes.to(device, non_blocking=non_blocking), *moved, format=self.format, shape=self.shape, dtype=self.dtype)

    def cpu(self) -> QTensor:
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> QTensor:
        return self.to("cuda" if device is None else device)

    def state_dict(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """The planes as plain tensors, under the names that the files of the lowbit program have: what torch.save and safetensors take."""
        return {prefix + PLANE_NAMES[name]: plane for name, plane in zip(PLANE_NAMES, self.planes()) if plane is not None}

    @staticmethod
    def from_state_dict(
        tensors: Mapping[str, torch.Tensor], format: str, shape: Sequence[int], dtype: torch.dtype = torch.float32, prefix: str = ""
    ) -> QTensor:
        if prefix + "codes" not in tensors:
            raise ValueError(f"QTensor: the state_dict has no {prefix}codes")
        codes, *others = PLANE_NAMES.values()
        return QTensor(tensors[prefix + codes], *[tensors.get(prefix + name) for name in others], format=format, shape=shape, dtype=dtype)


def _size(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def from_op(planes: Sequence[torch.Tensor], format: str, shape: Sequence[int], dtype: torch.dtype) -> QTensor:
    """From what an op returned: planes that a format has not are empty there. So are those of a matrix without numbers, but then None and
    empty mean the same."""
    codes, scales, zeros, tensor_scale = planes
    return QTensor(
        codes,
        scales if scales.numel() > 0 else None,
        zeros if zeros.numel() > 0 else None,
        tensor_scale if tensor_scale.numel() > 0 else None,
        format=format,
        shape=shape,
        dtype=dtype,
    )


def quantize(
    x: torch.Tensor,
    format: str,
    *,
    scales: torch.Tensor | None = None,
    zeros: torch.Tensor | None = None,
    tensor_scale: torch.Tensor | None = None,
) -> QTensor:
    """x [..., K] in a format such as "int4:g128" (docs/formats.md). Scales are computed from x, or taken as given, in the shape and type of
    the format's own planes."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"quantize: x is a {type(x).__name__}; use a torch.Tensor")
    if not isinstance(format, str):
        raise TypeError(f'quantize: format is a {type(format).__name__}; use a string such as "int4:g128"')
    planes = torch.ops.lowbit.quantize(x.detach(), format, scales, zeros, tensor_scale)
    return from_op(planes, format, x.shape, x.dtype)


def pack(q: QTensor) -> QTensor:
    """q.pack()"""
    return q.pack()
