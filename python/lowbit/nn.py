"""Layers that hold quantized weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from ._autograd import ACTIVATIONS, product
from ._format import PLAIN, parse
from ._matmul import explain
from ._qtensor import PLANE_NAMES, QTensor, quantize
from .schemes import Scheme, find

__all__ = ["QuantizedLinear", "QuantizedWeight"]


class QuantizedWeight(nn.Module):
    """A quantized matrix as buffers of a module. Its state_dict is the planes, under the names that the lowbit program gives them in a
    file: `codes`, `scales`, `zero_points`, `tensor_scale`. On a GPU whose kernels want another order it holds the packed bytes instead of
    the planes, and the planes are unpacked for the state_dict.
    """

    codes: torch.Tensor | None
    scales: torch.Tensor | None
    zero_points: torch.Tensor | None
    tensor_scale: torch.Tensor | None
    packed: torch.Tensor | None

    def __init__(self, tensor: QTensor):
        super().__init__()
        for name in (*PLANE_NAMES.values(), "packed"):
            self.register_buffer(name, None)
        self.format, self.shape, self.dtype = tensor.format, tensor.shape, tensor.dtype
        self.layout = PLAIN
        self.hold(tensor)

    @staticmethod
    def empty(format: str, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> QuantizedWeight:
        """All codes 0: something to load a state_dict into."""
        parsed = parse(format)
        shapes = parsed.planes(*shape)
        planes = (
            torch.zeros(shapes.codes, dtype=torch.uint8, device=device).view(parsed.codes_dtype),
            torch.zeros(shapes.scales, dtype=parsed.scales_dtype, device=device) if 0 not in shapes.scales else None,
            torch.zeros(shapes.zeros, dtype=torch.uint8, device=device) if 0 not in shapes.zeros else None,
            torch.zeros(shapes.tensor_scale, dtype=torch.float32, device=device) if 0 not in shapes.tensor_scale else None,
        )
        return QuantizedWeight(QTensor(*planes, format=format, shape=shape, dtype=dtype))

    def hold(self, tensor: QTensor) -> None:
        """Takes the numbers of `tensor`, packed where the device wants that."""
        self._set(tensor.pack())

    def _set(self, tensor: QTensor) -> None:
        self.layout, self.packed = tensor.layout, tensor.packed
        planes = (None,) * len(PLANE_NAMES) if tensor.is_packed else tensor.planes()
        for name, plane in zip(PLANE_NAMES.values(), planes):
            setattr(self, name, plane)

    @property
    def tensor(self) -> QTensor:
        if self.packed is not None:
            return QTensor.from_packed(self.packed, self.layout, format=self.format, shape=self.shape, dtype=self.dtype)
        planes = (self.scales, self.zero_points, self.tensor_scale)
        return QTensor(self._held(), *planes, format=self.format, shape=self.shape, dtype=self.dtype)

    def _held(self) -> torch.Tensor:
        """The codes, packed or not."""
        held = self.codes if self.packed is None else self.packed
        assert held is not None
        return held

    @property
    def device(self) -> torch.device:
        return self._held().device

    def product(
        self, x: torch.Tensor, bias: torch.Tensor | None, activation_format: str | None, gate: str | None = None
    ) -> torch.Tensor:
        """x [..., K] . weight^T + bias, gated or not: lowbit.matmul without the way through a QTensor, for every forward."""
        # The buffers themselves: as attributes, each costs a microsecond to look up.
        codes, scales, zeros, tensor_scale, packed = self._buffers.values()
        rows, columns = self.shape
        return product(
            x,
            codes if packed is None else packed,
            bias,
            None,
            None,
            None,
            scales,
            zeros,
            tensor_scale,
            weight_format=self.format,
            weight_layout=self.layout,
            rows=rows,
            columns=columns,
            quantize_x=activation_format or "",
            activation=gate or "none",
            gate=gate is not None,
        )

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> QuantizedWeight:
        # What .to(), .half() and the like do to every tensor of a model. A quantized weight has one type: seen as bytes, its planes
        # follow to another device and stay what they are when numbers are converted.
        target = fn(torch.empty(0, dtype=torch.uint8, device=self.device)).device
        if self.packed is not None and target != self.device:
            self._set(self.tensor.unpack())
        for name in (*PLANE_NAMES.values(), "packed"):
            plane = getattr(self, name)
            if plane is not None:
                setattr(self, name, fn(plane.view(torch.uint8)).view(plane.dtype))
        if self.packed is None and target.type == "cuda":
            self.hold(self.tensor)
        return self

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination.update(self.tensor.state_dict(prefix))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        parsed = parse(self.format)
        shapes = parsed.planes(*self.shape)
        dtypes = (parsed.codes_dtype, parsed.scales_dtype, torch.uint8, torch.float32)
        planes: dict[str, torch.Tensor] = {}
        complaints = len(missing_keys) + len(error_msgs)
        known = set()
        for (attribute, name), dtype in zip(PLANE_NAMES.items(), dtypes):
            shape, given = getattr(shapes, attribute), state_dict.get(prefix + name)
            if 0 in shape and attribute != "codes":
                continue
            known.add(prefix + name)
            if given is None:
                missing_keys.append(prefix + name)
                continue
            if given.dtype == torch.uint8 and dtype.itemsize == 1:  # files of readers that do not know the narrow types
                given = given.view(dtype)
            if tuple(given.shape) != shape or given.dtype != dtype:
                found, wanted = f"{given.dtype} {list(given.shape)}", f"{dtype} {list(shape)}"
                error_msgs.append(f"{prefix}{name} is {found}, but {self.format} of {list(self.shape)} takes {wanted}")
                continue
            planes[name] = given.detach().to(self.device, copy=True)
        if strict:
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in known]
        if complaints == len(missing_keys) + len(error_msgs):
            self.hold(QTensor.from_state_dict(planes, self.format, self.shape, self.dtype))

    def extra_repr(self) -> str:
        return repr(self.tensor)


class QuantizedLinear(nn.Module):
    """torch.nn.Linear with a quantized weight. Made from a Linear with from_linear; or made by its sizes, like a Linear, with numbers
    that quantize_weights() then quantizes, or that load_state_dict replaces.

    scheme: w4a16, w8a16, w8a8, w4a8, w4a4, fp8, nf4, q4_0, w1a1, a format of the weight, or a lowbit.Scheme.

    gate: an activation's name ("silu", "gelu_tanh", ...) for a layer of gate and up one upon the other. forward then gives
    activation(first half) * (second half), which has out_features / 2 values.
    """

    weight: nn.Parameter | QuantizedWeight
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        scheme: str | Scheme = "w4a16",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        gate: str | None = None,
    ):
        super().__init__()
        like = nn.Linear(in_features, out_features, bias, device=device, dtype=dtype)
        self._set_up(like, scheme, gate)

    def _set_up(self, linear: nn.Linear, scheme: str | Scheme, gate: str | None) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        if gate is not None and gate not in ACTIVATIONS:
            raise ValueError(f"QuantizedLinear: gate = {gate!r}; use {', '.join(ACTIVATIONS)}")
        if gate is not None and self.out_features % 2:
            raise ValueError(f"QuantizedLinear: out_features = {self.out_features}, but a gate takes two halves; use an even number")
        self.gate = gate
        self.scheme = find(scheme)
        parse(self.scheme.weight_format).planes(self.out_features, self.in_features)  # refuses a K that the format cannot have
        if self.scheme.activation_format:
            parse(self.scheme.activation_format).planes(1, self.in_features)
        self.weight = cast(nn.Parameter, linear.weight)
        self.bias = cast("nn.Parameter | None", linear.bias)

    @classmethod
    def from_linear(cls, linear: nn.Linear, scheme: str | Scheme = "w4a16", gate: str | None = None) -> QuantizedLinear:
        """The layer with its weight quantized; the Linear itself is left as it is."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_up(linear, scheme, gate)
        layer.train(linear.training)
        return layer.quantize_weights()

    @property
    def is_quantized(self) -> bool:
        return isinstance(self.weight, QuantizedWeight)

    @property
    def quantized_weight(self) -> QTensor:
        if not isinstance(self.weight, QuantizedWeight):
            raise ValueError("QuantizedLinear: the weight is not quantized yet; call quantize_weights()")
        return self.weight.tensor

    @torch.no_grad()
    def quantize_weights(self) -> QuantizedLinear:
        """Quantizes the weight, once; the numbers it had are given up."""
        if not isinstance(self.weight, QuantizedWeight):
            quantized = QuantizedWeight(quantize(self.weight, self.scheme.weight_format))
            del self.weight
            self.weight = quantized
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.weight, QuantizedWeight):
            if torch.is_autocast_enabled(x.device.type):  # as it would be for a Linear
                x = x.to(torch.get_autocast_dtype(x.device.type))
            return self.weight.product(x, self.bias, self.scheme.activation_format, self.gate)
        y = functional.linear(x, self.weight, self.bias)
        if self.gate is None:
            return y
        first, second = y.chunk(2, -1)
        return ACTIVATIONS[self.gate](first) * second

    def explain(self, x: torch.Tensor) -> str:
        """Which kernel forward(x) runs, and why the others were passed over."""
        return explain(
            x, self.quantized_weight, self.bias, self.gate, gate=self.gate is not None, x_format=self.scheme.activation_format
        )

    def _load_from_state_dict(self, state_dict, prefix, *arguments):
        # Planes for a layer that still has plain numbers: it becomes quantized, and its weight, now a module, takes them.
        if not self.is_quantized and prefix + "weight.codes" in state_dict:
            shape, weight = (self.out_features, self.in_features), self.weight
            del self.weight
            self.weight = QuantizedWeight.empty(self.scheme.weight_format, shape, weight.dtype, weight.device)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        state = "" if self.is_quantized else ", not quantized yet"
        bias = self.bias is not None
        gate = "" if self.gate is None else f", gate={self.gate}"
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}{gate}, {self.scheme}{state}"
