"""Layers that hold quantized weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import nn
from torch.nn import functional

from . import _binary
from ._autograd import ACTIVATIONS, product
from ._bits import weight_bits
from ._format import PLAIN, parse
from ._matmul import explain
from ._qtensor import PLANE_NAMES, QTensor, quantize
from .schemes import Scheme, find

__all__ = ["BinaryConv2d", "BinaryLinear", "GatedLinear", "GatedMLP", "QuantizedLinear", "QuantizedWeight"]


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

    @classmethod
    def empty(cls, format: str, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> QuantizedWeight:
        """All codes 0: something to load a state_dict into."""
        parsed = parse(format)
        shapes = parsed.planes(*shape)
        planes = (
            torch.zeros(shapes.codes, dtype=torch.uint8, device=device).view(parsed.codes_dtype),
            torch.zeros(shapes.scales, dtype=parsed.scales_dtype, device=device) if 0 not in shapes.scales else None,
            torch.zeros(shapes.zeros, dtype=torch.uint8, device=device) if 0 not in shapes.zeros else None,
            torch.zeros(shapes.tensor_scale, dtype=torch.float32, device=device) if 0 not in shapes.tensor_scale else None,
        )
        return cls(QTensor(*planes, format=format, shape=shape, dtype=dtype))

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


def _check_gate(layer: str, gate: str | None, out_features: int) -> None:
    if gate is not None and gate not in ACTIVATIONS:
        raise ValueError(f"{layer}: gate = {gate!r}; use {', '.join(ACTIVATIONS)}")
    if gate is not None and out_features % 2:
        raise ValueError(f"{layer}: out_features = {out_features}, but a gate takes two halves; use an even number")


def _gated(y: torch.Tensor, gate: str) -> torch.Tensor:
    first, second = y.chunk(2, -1)
    return ACTIVATIONS[gate](first) * second


class GatedLinear(nn.Linear):
    """torch.nn.Linear of gate and up one upon the other: forward gives activation(first half) * (second half), which has out_features / 2
    values. quantize_ makes it a QuantizedLinear with the same gate, which is then part of the product.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gate: str = "silu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        _check_gate("GatedLinear", gate, out_features)
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.gate = gate

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return _gated(super().forward(input), self.gate)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate={self.gate}"


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)), where gate and up are one layer: a GatedLinear, or a QuantizedLinear with a gate."""

    def __init__(self, gate_up: GatedLinear | QuantizedLinear, down: nn.Module):
        super().__init__()
        self.gate_up, self.down = gate_up, down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.gate_up(x))


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
        _check_gate("QuantizedLinear", gate, self.out_features)
        self.gate = gate
        self.scheme = find(scheme)
        parse(self.scheme.weight_format).planes(self.out_features, self.in_features)  # refuses a K that the format cannot have
        if self.scheme.activation_format:
            parse(self.scheme.activation_format).planes(1, self.in_features)
        self.weight = cast(nn.Parameter, linear.weight)
        self.bias = cast("nn.Parameter | None", linear.bias)

    @classmethod
    def from_linear(cls, linear: nn.Linear, scheme: str | Scheme = "w4a16", gate: str | None = None) -> QuantizedLinear:
        """The layer with its weight quantized; the Linear itself is left as it is. A GatedLinear brings its gate."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_up(linear, scheme, linear.gate if gate is None and isinstance(linear, GatedLinear) else gate)
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
        return y if self.gate is None else _gated(y, self.gate)

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


class _Bits(QuantizedWeight):
    """Never packed: convolutions read the planes."""

    def hold(self, tensor: QTensor) -> None:
        self._set(tensor.unpack())


class _BinaryLayer(nn.Module):
    """What binary layers share: the weight, as numbers whose signs count, or as these signs alone."""

    weight: nn.Parameter | QuantizedWeight
    bias: nn.Parameter | None

    def _take(self, layer: nn.Linear | nn.Conv2d, scale: Literal["mean"] | None) -> None:
        if scale not in (None, "mean"):
            raise ValueError(f'{type(self).__name__}: scale = {scale!r}; use "mean" or None')
        self.scale = scale
        self.weight = cast(nn.Parameter, layer.weight)
        self.bias = cast("nn.Parameter | None", layer.bias)
        self.train(layer.training)

    def _filters(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight as [outputs, channels, height, width]."""
        raise NotImplementedError

    def _bits_shape(self) -> tuple[int, int]:
        """Of the weight as a matrix of bits; channels fill whole bytes where there is more than one row of them in it."""
        raise NotImplementedError

    @property
    def is_quantized(self) -> bool:
        return isinstance(self.weight, QuantizedWeight)

    @property
    def quantized_weight(self) -> QTensor:
        if not isinstance(self.weight, QuantizedWeight):
            raise ValueError(f"{type(self).__name__}: the weight is not quantized yet; call quantize_weights()")
        return self.weight.tensor

    @torch.no_grad()
    def quantize_weights(self):
        """Keeps the signs and scales of the weight alone, a bit for each number; forward gives the same as before. The layer is not to be
        trained further: the numbers are given up."""
        if not isinstance(self.weight, QuantizedWeight):
            codes = weight_bits(self._filters(self.weight))
            scales = torch.ones(codes.shape[0], device=codes.device) if self.scale is None else _binary.mean_scale(self.weight)
            held = QTensor(codes, scales.float()[:, None], format="int1:row", shape=self._bits_shape(), dtype=self.weight.dtype)
            del self.weight
            self.weight = _Bits(held)
        return self

    def _held(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The bits, and the scale of each output."""
        # The buffers themselves, as in QuantizedWeight.product: a QTensor of them takes longer to make than a small convolution.
        codes, scales, *_ = cast(QuantizedWeight, self.weight)._buffers.values()
        return cast(torch.Tensor, codes), None if self.scale is None else cast(torch.Tensor, scales)[:, 0]

    def _result_dtype(self, x: torch.Tensor) -> torch.dtype:
        # x is not converted under autocast, as it would be for a Linear: the signs of small numbers would be lost.
        return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else _binary.result_dtype(x)

    def _load_from_state_dict(self, state_dict, prefix, *arguments):
        # Bits for a layer that still has numbers, as in QuantizedLinear.
        if not self.is_quantized and prefix + "weight.codes" in state_dict:
            weight = self.weight
            del self.weight
            self.weight = _Bits.empty("int1:row", self._bits_shape(), weight.dtype, weight.device)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _state(self) -> str:
        return f"bias={self.bias is not None}, scale={self.scale}" + ("" if self.is_quantized else ", not quantized yet")


class BinaryLinear(_BinaryLayer):
    """lowbit.binary_linear as a layer: scale * (sign(x) . sign(weight)^T) + bias, where the product is an exact integer.

    It is trained through its weight, real numbers whose signs count (straight-through estimates); quantize_weights() then leaves a bit for
    each. scale: "mean" is mean |weight| of each output, as in XNOR-Net; None is 1.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        scale: Literal["mean"] | None = "mean",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self._set_up(nn.Linear(in_features, out_features, bias, device=device, dtype=dtype), scale)

    def _set_up(self, linear: nn.Linear, scale: Literal["mean"] | None) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._take(linear, scale)

    @classmethod
    def from_linear(cls, linear: nn.Linear, scale: Literal["mean"] | None = "mean") -> BinaryLinear:
        """The layer with the parameters of a Linear: the same ones, so that an optimizer goes on with them. They are still numbers, to be
        trained, or to be given up with quantize_weights()."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_up(linear, scale)
        return layer

    def _filters(self, weight: torch.Tensor) -> torch.Tensor:
        return weight[:, :, None, None]

    def _bits_shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = self._result_dtype(x)
        if not isinstance(self.weight, QuantizedWeight):
            return _binary.binary_linear(x, self.weight, self.scale, self.bias, out_dtype=dtype)
        codes, scale = self._held()
        counts = _binary.multiply("BinaryLinear", x, codes, self.in_features, torch.float32)
        return _binary.finish(counts, scale, self.bias, dtype, -1)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self._state()}"


class BinaryConv2d(_BinaryLayer):
    """lowbit.binary_conv2d as a layer: scale * conv2d(sign(x), sign(weight)) + bias, where the convolution is an exact integer, to which
    pixels of the padding add nothing.

    x is numbers, or their signs as lowbit.sign_bits gives them. Trained and quantized as BinaryLinear is. Its state_dict then has the bits
    of [outputs, height, width, channels / groups], channels filled up to whole bytes.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _binary.Pair,
        stride: _binary.Pair = 1,
        padding: _binary.Padding = 0,
        dilation: _binary.Pair = 1,
        groups: int = 1,
        bias: bool = True,
        scale: Literal["mean"] | None = "mean",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        window = _binary.window_of("BinaryConv2d", kernel_size, stride, padding, dilation)
        around = padding if isinstance(padding, str) else window.padding[::2]
        self._set_up(
            nn.Conv2d(
                in_channels, out_channels, window.kernel, window.stride, around, window.dilation, groups, bias, device=device, dtype=dtype
            ),
            scale,
        )

    def _set_up(self, conv: nn.Conv2d, scale: Literal["mean"] | None) -> None:
        if conv.padding_mode != "zeros":
            raise ValueError(f"BinaryConv2d: padding_mode = {conv.padding_mode!r}; only zeros are known here")
        self.in_channels, self.out_channels, self.groups = conv.in_channels, conv.out_channels, conv.groups
        self.kernel_size, self.stride, self.padding, self.dilation = conv.kernel_size, conv.stride, conv.padding, conv.dilation
        padding = cast(_binary.Padding, conv.padding)
        self._window = _binary.window_of("BinaryConv2d", conv.kernel_size, conv.stride, padding, conv.dilation)
        self._take(conv, scale)

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, scale: Literal["mean"] | None = "mean") -> BinaryConv2d:
        """The layer with the parameters of a Conv2d, as BinaryLinear.from_linear."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set_up(conv, scale)
        return layer

    def _filters(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def _bits_shape(self) -> tuple[int, int]:
        channel_bytes = (self.in_channels // self.groups + 7) // 8
        return self.out_channels, self._window.taps * channel_bytes * 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = self._result_dtype(x)
        if not isinstance(self.weight, QuantizedWeight):
            return _binary.binary_conv2d(
                x, self.weight, self.stride, cast(_binary.Padding, self.padding), self.dilation, self.groups, self.scale, self.bias,
                out_dtype=dtype,
            )  # fmt: skip
        codes, scale = self._held()
        channels = self.in_channels // self.groups
        return _binary.convolve("BinaryConv2d", x, codes, self.out_channels, channels, self._window, self.groups, scale, self.bias, dtype)

    def extra_repr(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{sizes}, padding={self.padding}, dilation={self.dilation}, groups={self.groups}, {self._state()}"
