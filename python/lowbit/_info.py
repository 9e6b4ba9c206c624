"""This machine as the library sees it."""

import json
from typing import Any

import torch

from . import _c
from ._load import FOLDER


def info() -> dict[str, Any]:
    """Version, processor, GPUs, every kernel with whether it can run here and why not; and the torch that this package works with."""
    found = json.loads(_c.info())
    found["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda, "gpus": torch.cuda.device_count()}
    found["libraries"] = str(FOLDER)
    return found
