"""The package from outside: its examples, what import says when something is missing, and the wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from torch_cases import NO_CUDA, ROOT, lowbit, needs_cuda  # noqa: F401

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LIBRARIES = Path(lowbit._load.FOLDER)


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )


def run_here(*arguments, **environment):
    """With the package that these tests use."""
    folder = str(Path(lowbit.__file__).parents[1])
    return run(*arguments, **{"PYTHONPATH": folder, "LOWBIT_LIBRARY_DIR": str(LIBRARIES), **environment})


def test_there_are_five_examples():
    assert len(EXAMPLES) == 5


# Of a size that a test can wait for.
EXAMPLE_ARGUMENTS = {"llama_decode": ["--tiny"]}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, device):
    if example.stem == "llama_decode":
        pytest.importorskip("transformers", reason="transformers is not installed here")
    done = run_here(example, "--device", device, *EXAMPLE_ARGUMENTS.get(example.stem, []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert device in done.stdout or "chosen" in done.stdout or "w4a16" in done.stdout


@pytest.mark.parametrize("separate", [[], ["--separate"]], ids=["merged", "separate"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_llama_decode_prints_a_line_for_each_scheme(device, separate):
    pytest.importorskip("transformers", reason="transformers is not installed here")
    schemes = ["bf16", "w8a8", "fp8", "nf4"]  # beside the usual ones
    arguments = ["--device", device, "--tiny", "--layers", 1, "--tokens", 5, "--schemes", ",".join(schemes), *separate]
    done = run_here(ROOT / "examples" / "llama_decode.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    title, header, *lines = done.stdout.splitlines()
    assert title.startswith("1 layers of 256, 5 tokens") and header.split()[0] == "scheme"
    assert [line.split()[0] for line in lines] == schemes
    weights = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert weights["nf4"] < weights["w8a8"] < weights["bf16"]


@needs_cuda
def test_llama_decode_compiled():
    """With attention of its own, and kernels of torch's in the chain of dependent launches; it compares graph and single steps itself."""
    pytest.importorskip("transformers", reason="transformers is not installed here")
    arguments = ["--device", "cuda", "--tiny", "--compile", "--tokens", 40, "--schemes", "bf16,w4a16,w8a8"]
    done = run_here(ROOT / "examples" / "llama_decode.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["bf16", "w4a16", "w8a8"]


ATTENTION = """
import torch
from parts.one_token_attention import attend
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

torch.manual_seed(0)
for heads, shared, size, slots in ((4, 2, 64, 41), (8, 8, 128, 32), (6, 1, 16, 1), (4, 1, 16, 700)):
    for position in {0, slots // 2, slots - 1}:
        for scale in (size**-0.5, 0.3):
            query, key, value = (torch.randn(1, count, 1, size, device=DEVICE) for count in (heads, shared, shared))
            cos, sin = torch.randn(2, 1, 1, size, device=DEVICE)
            keys, values = torch.randn(2, 1, shared, slots, size, device=DEVICE)
            at = torch.tensor([[position]], device=DEVICE)
            turned_query, turned_key = apply_rotary_pos_emb(*(x.double() for x in (query, key, cos, sin)))
            wanted_keys, wanted_values = keys.double(), values.double()
            wanted_keys[:, :, position], wanted_values[:, :, position] = turned_key[:, :, 0], value[:, :, 0]
            numbers = turned_query, wanted_keys[:, :, : position + 1], wanted_values[:, :, : position + 1]
            wanted = torch.nn.functional.scaled_dot_product_attention(*numbers, enable_gqa=True, scale=scale)
            flat = (x.flatten() for x in (query, key, value, cos, sin))
            found = attend(*flat, at, keys[0], values[0], scale)
            assert torch.allclose(found.double(), wanted.flatten(), rtol=1e-5, atol=1e-5)
            assert torch.allclose(keys.double(), wanted_keys, rtol=1e-5, atol=1e-5) and torch.equal(values.double(), wanted_values)
print("done")
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_one_token_attention(device):
    pytest.importorskip("triton", reason="triton is not installed here")
    pytest.importorskip("transformers", reason="transformers is not installed here")
    folders = f"{ROOT / 'examples'}:{Path(lowbit.__file__).parents[1]}"
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    done = run_here("-c", f"DEVICE = {device!r}\n{ATTENTION}", PYTHONPATH=folders, **interpreted)
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_llama_decode_says_that_transformers_is_missing(tmp_path):
    (tmp_path / "transformers.py").write_text("raise ImportError('no transformers here')")
    folders = f"{tmp_path}:{Path(lowbit.__file__).parents[1]}"
    done = run_here(ROOT / "examples" / "llama_decode.py", "--device", "cpu", "--tiny", PYTHONPATH=folders)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == ("llama_decode: transformers does not import here (no transformers here); run: pip install transformers\n")


def import_error(**environment):
    done = run_here("-c", "import lowbit", **environment)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_import_says_where_it_looked(tmp_path):
    text = import_error(LOWBIT_LIBRARY_DIR=str(tmp_path))
    assert text.startswith("ImportError: lowbit's library liblowbit.so is not in LOWBIT_LIBRARY_DIR=") and "pip install ." in text


def test_import_says_why_a_library_does_not_load(tmp_path):
    for name in ("liblowbit.so", "liblowbit_torch.so"):
        (tmp_path / name).write_bytes(b"not a library")
    text = import_error(LOWBIT_LIBRARY_DIR=str(tmp_path))
    assert text.startswith("ImportError: lowbit's libraries in")
    assert "cannot be loaded here" in text and "build them on this machine" in text


def test_import_says_that_torch_is_missing_or_old(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.1'")
    folders = f"{tmp_path}:{Path(lowbit.__file__).parents[1]}"
    assert import_error(PYTHONPATH=folders) == (
        "ImportError: lowbit needs torch 2.10 or newer, but this is torch 2.9.1; run: pip install -U torch"
    )
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    assert import_error(PYTHONPATH=folders).startswith("ImportError: lowbit needs PyTorch, which does not import here (no torch here)")


def test_info():
    found = lowbit.info()
    assert found["version"] == lowbit.__version__ and found["torch"]["version"] and found["libraries"] == str(LIBRARIES)
    assert all({"name", "available", "reason"} <= set(kernel) for kernel in found["kernels"])


def test_the_op_library_needs_no_version():
    """Nothing but the C shim of torch, and nothing of Python."""
    listing = subprocess.run(["nm", "-D", "--undefined-only", LIBRARIES / "liblowbit_torch.so"], capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("nm is not installed here")
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    assert any(name.startswith("aoti_torch_") for name in names)
    assert not [name for name in names if name.startswith(("Py", "_Py")) or "c10" in name or "3at" in name]


def test_wheel(tmp_path):
    """pip install ., as a user runs it, but without what takes minutes to compile and is tested in the build tree: CUDA, optimization."""
    pytest.importorskip("scikit_build_core", reason="scikit-build-core, which builds the wheel, is not installed")
    if run("-m", "pip", "--version").returncode != 0:
        pytest.skip("pip is not installed here")
    build = ROOT / "build" / "wheel-test"
    done = run(
        "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, f"-Cbuild-dir={build}", "-Ccmake.define.LOWBIT_CUDA=OFF",
        "-Ccmake.define.CMAKE_CXX_FLAGS_RELEASE=-O1", ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"lowbit-{lowbit.__version__}-py3-none-")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")
        names = set(file.namelist())
    assert {"lowbit/lib/liblowbit.so", "lowbit/lib/liblowbit_torch.so", "lowbit/py.typed", "lowbit/nn.py"} <= names
    program = "import torch, lowbit; x = torch.ones(2, 64); print(lowbit.__file__, lowbit.matmul(x, lowbit.quantize(x, 'int4:g32')))"
    environment = {key: value for key, value in os.environ.items() if key != "LOWBIT_LIBRARY_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**environment, "PYTHONPATH": str(tmp_path / "installed")}
    )
    assert done.returncode == 0 and str(tmp_path) in done.stdout and "tensor(" in done.stdout, done.stdout + done.stderr
