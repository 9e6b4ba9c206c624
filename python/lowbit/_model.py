"""quantize_: the linear layers of a model, in place."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import nn

from ._report import LayerReport, Report
from ._select import Selection
from .nn import GatedLinear, QuantizedLinear
from .schemes import Scheme, find

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def find_owners(model: nn.Module) -> dict[int, set[str]]:
    """The modules that hold each parameter: tied weights have several."""
    owners: dict[int, set[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).add(name)
    return owners


def _reason(name: str, linear: nn.Linear, owners: dict[int, set[str]]) -> str | None:
    """Why a linear layer cannot be replaced."""
    if type(linear) not in (nn.Linear, GatedLinear):
        return f"it is a {type(linear).__name__}, whose weight others may read"
    if linear.weight.is_meta:
        return "its weight has no data yet (meta device)"
    if linear.weight.dtype not in FLOATS:
        return f"its weight is {linear.weight.dtype}"
    others = sorted(owners[id(linear.weight)] - {name})
    return f"its weight is also that of {', '.join(others)}" if others else None


def _describe(name: str, linear: nn.Linear, layer: QuantizedLinear) -> LayerReport:
    weight = linear.weight.detach()
    held = layer.quantized_weight
    token = torch.zeros(1, linear.in_features, dtype=weight.dtype, device=weight.device)
    kernel = re.match(r"chosen: (\w+)", layer.explain(token))
    norm = torch.linalg.vector_norm(weight, dtype=torch.float64)
    difference = torch.linalg.vector_norm(held.dequantize(torch.float32).to(torch.float64) - weight, dtype=torch.float64)
    return LayerReport(
        name=name,
        shape=tuple(weight.shape),
        scheme=layer.scheme.name,
        format=held.format,
        kernel=kernel.group(1) if kernel else "?",
        error=float(difference / norm) if norm > 0 else 0.0,
        bytes_before=weight.numel() * weight.element_size(),
        bytes_after=held.nbytes,
    )


@torch.no_grad()
def quantize_(
    model: nn.Module,
    scheme: str | Scheme,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> Report:
    """Replaces the linear layers of a model in place, and reports each: its format, kernel and error, or why it was left alone.

    include and exclude are regular expressions, of which one must be found in a layer's name, or none; exclude wins.
    """
    scheme = find(scheme)
    selection = Selection("quantize_", include, exclude)
    if isinstance(model, nn.Linear):
        raise ValueError("quantize_: the model is itself a Linear, which cannot replace itself; use QuantizedLinear.from_linear")
    owners = find_owners(model)
    report = Report()
    done: dict[int, QuantizedLinear] = {}  # a layer that stands in several places is quantized once
    for name, child in list(model.named_modules(remove_duplicate=False)):
        if not isinstance(child, nn.Linear):
            continue
        parent_name, _, child_name = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        if id(child) in done:
            setattr(parent, child_name, done[id(child)])
            continue
        reason = selection.reason(name) or _reason(name, child, owners)
        layer = None
        if reason is None:
            try:
                layer = QuantizedLinear.from_linear(child, scheme)
            except ValueError as error:  # a K that the format cannot have
                reason = str(error)
        if layer is None:
            report.layers.append(LayerReport(name, tuple(child.weight.shape), reason=reason))
        else:
            report.layers.append(_describe(name, child, layer))
            setattr(parent, child_name, layer)
            done[id(child)] = layer
    return report
