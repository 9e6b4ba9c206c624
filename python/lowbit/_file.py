"""safetensors files with quantized tensors in them, as the lowbit program writes and reads them: the planes under NAME.codes, NAME.scales,
NAME.zero_points and NAME.tensor_scale, and what they are in the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from ._qtensor import PLANE_NAMES, QTensor

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def save_file(tensors: Mapping[str, torch.Tensor | QTensor], path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors and QTensors to a safetensors file."""
    from safetensors.torch import save_file as save

    plain: dict[str, torch.Tensor] = {}
    notes = dict(metadata or {})
    for name, tensor in tensors.items():
        if isinstance(tensor, QTensor):
            plain.update(tensor.state_dict(name + "."))
            described = {"format": tensor.format, "shape": list(tensor.shape), "dtype": _DTYPE_NAMES[tensor.dtype]}
            notes["lowbit"], notes[f"lowbit.{name}"] = "1", json.dumps(described, separators=(",", ":"))
        else:
            plain[name] = tensor
    save({name: tensor.contiguous() for name, tensor in plain.items()}, str(path), notes)


def load_file(path: str | Path, device: str | torch.device = "cpu") -> dict[str, torch.Tensor | QTensor]:
    """Reads a safetensors file; what lowbit quantized in it comes back as QTensors."""
    from safetensors import safe_open

    with safe_open(str(path), "pt", device=str(device)) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        notes = file.metadata() or {}
    quantized: dict[str, QTensor] = {}
    for key, text in notes.items():
        if not key.startswith("lowbit."):
            continue
        name, described = key.removeprefix("lowbit."), json.loads(text)
        planes = {plane: tensors.pop(f"{name}.{plane}") for plane in PLANE_NAMES.values() if f"{name}.{plane}" in tensors}
        quantized[name] = QTensor.from_state_dict(planes, described["format"], described["shape"], _DTYPES[described["dtype"]])
    return {**tensors, **quantized}
