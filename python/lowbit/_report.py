"""What quantize_ did to each layer of a model, and merge_ to each module; both print as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LayerReport:
    name: str
    shape: tuple[int, ...]
    scheme: str | None = None  # None: left alone
    format: str | None = None
    kernel: str | None = None  # for one token
    error: float | None = None  # ||decoded - weight|| / ||weight||
    bytes_before: int = 0
    bytes_after: int = 0
    reason: str | None = None  # why it was left alone

    @property
    def is_quantized(self) -> bool:
        return self.scheme is not None


@dataclass
class Report:
    layers: list[LayerReport] = field(default_factory=list)

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> LayerReport:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    @property
    def quantized(self) -> list[LayerReport]:
        return [layer for layer in self.layers if layer.is_quantized]

    @property
    def left_alone(self) -> list[LayerReport]:
        return [layer for layer in self.layers if not layer.is_quantized]

    def __str__(self) -> str:
        if not self.layers:
            return "no linear layers"
        rows = [("layer", "shape", "format", "kernel", "error")]
        for layer in self.layers:
            shape = " x ".join(map(str, layer.shape))
            if layer.is_quantized:
                rows.append((layer.name, shape, str(layer.format), str(layer.kernel), f"{layer.error:.4f}"))
            else:
                rows.append((layer.name, shape, f"left alone: {layer.reason}", "", ""))
        # A reason may run over the columns after it.
        whole = [row for row in rows if not row[2].startswith("left alone")]
        widths = [max(len(row[i]) for row in (rows if i < 2 else whole)) for i in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        before, after = (sum(getattr(layer, name) for layer in self.quantized) for name in ("bytes_before", "bytes_after"))
        lines.append(
            f"{len(self.quantized)} of {len(self.layers)} linear layers quantized, {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB of weights"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class ModuleReport:
    name: str
    linears: tuple[str, ...]  # children of the module
    merged: str | None = None  # where the one linear layer in their place is now, under the module; None: left alone
    shape: tuple[int, ...] = ()  # of its weight
    gate: str | None = None
    reason: str | None = None  # why it was left alone

    @property
    def is_merged(self) -> bool:
        return self.merged is not None

    def __str__(self) -> str:
        if not self.is_merged:
            return f"left alone: {self.reason}"
        gate = "" if self.gate is None else f", gate={self.gate}"
        return f"{self.merged}, {' x '.join(map(str, self.shape))}{gate}"


@dataclass
class MergeReport:
    modules: list[ModuleReport] = field(default_factory=list)

    def __iter__(self) -> Iterator[ModuleReport]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, name: str) -> ModuleReport:
        for module in self.modules:
            if module.name == name:
                return module
        raise KeyError(name)

    @property
    def merged(self) -> list[ModuleReport]:
        return [module for module in self.modules if module.is_merged]

    @property
    def left_alone(self) -> list[ModuleReport]:
        return [module for module in self.modules if not module.is_merged]

    def __str__(self) -> str:
        if not self.modules:
            return "no modules with linear layers to merge"
        rows = [("module", "linears", "merged")]
        rows += [(module.name or "(the model)", ", ".join(module.linears), str(module)) for module in self.modules]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, f"{len(self.merged)} of {len(self.modules)} modules merged"])

    def __repr__(self) -> str:
        return str(self)
