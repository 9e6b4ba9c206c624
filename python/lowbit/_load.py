"""Finds the two libraries of the package and loads them, or says why not and what to do: there is no second, slower way to go on."""

import ctypes
import os
import re
from pathlib import Path

OLDEST_TORCH = (2, 10)
CORE, OPS = "liblowbit.so", "liblowbit_torch.so"


def _check_torch() -> None:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"lowbit needs PyTorch, which does not import here ({error}); run: pip install 'torch>=2.10'") from error
    if not hasattr(torch, "__version__"):
        found = ", ".join(torch.__path__)
        raise ImportError(f"lowbit needs PyTorch, but here torch is only the folder {found}; run: pip install 'torch>=2.10'")
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < OLDEST_TORCH:
        raise ImportError(f"lowbit needs torch 2.10 or newer, but this is torch {torch.__version__}; run: pip install -U torch")


def _folder() -> Path:
    """LOWBIT_LIBRARY_DIR, for a build tree; else where the wheel has them."""
    named = os.environ.get("LOWBIT_LIBRARY_DIR")
    folder = Path(named).resolve() if named else Path(__file__).resolve().parent / "lib"
    for name in (CORE, OPS):
        if not (folder / name).exists():
            where = f"LOWBIT_LIBRARY_DIR={named}" if named else f"{folder}"
            raise ImportError(
                f"lowbit's library {name} is not in {where}. From a source checkout, either install the package (pip install .), or build "
                f"with cmake -DLOWBIT_TORCH=ON and set LOWBIT_LIBRARY_DIR to the build folder"
            )
    return folder


def _load() -> tuple[Path, ctypes.CDLL, ctypes.CDLL]:
    _check_torch()
    import torch

    folder = _folder()
    try:
        core = ctypes.CDLL(str(folder / CORE))
        torch.ops.load_library(str(folder / OPS))
        ops = ctypes.CDLL(str(folder / OPS))
    except OSError as error:
        raise ImportError(
            f"lowbit's libraries in {folder} cannot be loaded here: {error}. They were built for another system or a newer torch than "
            f"{torch.__version__}; build them on this machine: pip install --no-binary lowbit ."
        ) from error
    return folder, core, ops


FOLDER, LIBRARY, OP_LIBRARY = _load()
