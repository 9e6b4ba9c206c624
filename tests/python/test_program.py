"""The command line program: every subcommand, run as a user runs it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("LOWBIT_PROGRAM", ROOT / "build/release/tools/lowbit"))

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"the program was not built: {PROGRAM} does not exist")

# ‖decoded - x‖ / ‖x‖ on normal numbers may be this large.
ERROR_BOUNDS = {
    "fp32": 0.0,
    "fp16": 0.0005,
    "bf16": 0.004,
    "int8:tensor": 0.015,
    "int8:row": 0.012,
    "uint8:g128:asym": 0.008,
    "int4:g128": 0.13,
    "uint4:g32:asym": 0.10,
    "int1:row": 0.62,
    "fp8_e4m3:block128": 0.03,
    "fp8_e5m2:row": 0.06,
    "mxfp8": 0.035,
    "nf4:g64": 0.105,
    "mxfp4": 0.13,
    "nvfp4": 0.11,
    "q4_0": 0.10,
    "q5_1": 0.045,
    "q8_0": 0.008,
    "q2_k": 0.35,
    "q4_k": 0.085,
    "q6_k": 0.025,
    "iq4_nl": 0.09,
}


def run(*arguments, status=0, timeout=300):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def refused(*arguments):
    """The text that explains a failure: one line on stderr, nothing on stdout."""
    done = run(*arguments, status=1)
    assert done.stdout == ""
    assert re.fullmatch(r"lowbit: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


def relative_error(found, wanted):
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.fixture
def model(tmp_path):
    """A small checkpoint with everything that a large one has."""
    random = np.random.default_rng(1)
    tensors = {
        "layers.0.up.weight": random.standard_normal((64, 512), dtype=np.float32),
        "layers.0.down.weight": random.standard_normal((48, 256)).astype(np.float16),
        "layers.1.up.weight": random.standard_normal((32, 512)).astype(ml_dtypes.bfloat16),
        "layers.1.experts": random.standard_normal((3, 16, 256), dtype=np.float32),
        "lm_head.weight": random.standard_normal((40, 256), dtype=np.float32),
        "odd.weight": random.standard_normal((7, 33), dtype=np.float32),
        "norm.weight": random.standard_normal(512, dtype=np.float32),
        "empty.weight": np.zeros((0, 256), dtype=np.float32),
        "scale": np.array(3.5, dtype=np.float32),
        "positions": np.arange(64, dtype=np.int64).reshape(8, 8),
        "mask": np.array([[True, False], [False, True]]),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt", "note": "größer"})
    return path, tensors


MATRICES = ["layers.0.up.weight", "layers.0.down.weight", "layers.1.up.weight", "layers.1.experts", "lm_head.weight", "odd.weight"]


def inspect(path):
    contents = json.loads(run("inspect", path, "--json").stdout)
    return contents, {tensor["name"]: tensor for tensor in contents["tensors"]}


def test_version_and_help():
    assert re.fullmatch(r"lowbit \d+\.\d+\.\d+\n", run("--version").stdout)
    for command in ["demo", "info", "formats", "quantize", "dequantize", "inspect", "bench", "verify"]:
        assert command in run("--help").stdout
        assert "Usage:" in run(command, "--help").stdout


def test_usage_errors_are_not_status_0():
    for arguments in [["nonsense"], ["quantize"], ["bench", "--op", "nonsense"], ["demo", "--rows", "-1"]]:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
        assert done.returncode not in (0, -signal.SIGABRT, -signal.SIGSEGV)
        assert done.stderr


def test_info():
    info = json.loads(run("info", "--json").stdout)
    assert info["version"] and info["cpu"]["threads"] >= 1
    assert {kernel["verb"] for kernel in info["kernels"]} >= {"quantize", "dequantize", "matmul"}
    for kernel in info["kernels"]:
        assert kernel["available"] == (kernel["reason"] == "")
    text = run("info").stdout
    for kernel in info["kernels"]:
        assert kernel["name"] in text and kernel["reason"] in text
    assert "\x1b" not in text


def test_formats():
    rows = json.loads(run("formats", "--json").stdout)
    by_name = {row["name"]: row for row in rows}
    assert set(ERROR_BOUNDS) <= set(by_name) and len(by_name) == len(rows)
    for name, bound in ERROR_BOUNDS.items():
        assert by_name[name]["relative_error"] <= bound, name
    assert by_name["q4_0"]["bits_per_weight"] == 4.5
    assert by_name["int4:g128"]["bytes_4096x4096"] == 4096 * 4096 // 2 + 4096 * 32 * 2
    text = run("formats").stdout
    assert all(re.search(f"^{re.escape(name)} ", text, re.MULTILINE) for name in by_name)
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("format", ERROR_BOUNDS)
def test_round_trip(model, tmp_path, format):
    path, tensors = model
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"
    report = run("quantize", path, small, "--format", format).stdout
    _, listed = inspect(small)
    run("dequantize", small, back)
    restored = load_file(back)
    assert set(restored) == set(tensors)
    for name, tensor in tensors.items():
        found = restored[name]
        assert found.dtype == tensor.dtype and found.shape == tensor.shape, name
        if "format" in listed[name]:
            assert name in MATRICES and listed[name]["format"] == format
            assert listed[name]["shape"] == list(tensor.shape)
            # A result in 16 bits is rounded once more.
            rounding = {"float16": 0.0005, "bfloat16": 0.004}.get(str(tensor.dtype), 0)
            assert relative_error(found, tensor) <= ERROR_BOUNDS[format] + rounding, name
            assert name in report
        else:
            assert same_bits(found, tensor), name
    unsuited = {"odd.weight"} if format.startswith(("q", "iq")) else set()
    assert {name for name in MATRICES if "format" in listed[name]} == set(MATRICES) - unsuited
    for name in unsuited:
        assert re.search(rf"copied unchanged: {name}: .*K = 33", report)


def test_metadata_survives(model, tmp_path):
    path, _ = model
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"
    run("quantize", path, small, "--format", "int4:g128")
    run("dequantize", small, back)
    with safe_open(small, "numpy") as file:
        metadata = file.metadata()
        assert metadata["format"] == "pt" and metadata["note"] == "größer" and metadata["lowbit"] == "1"
        described = json.loads(metadata["lowbit.layers.1.experts"])
        assert described == {"format": "int4:g128", "shape": [3, 16, 256], "dtype": "F32"}
    with safe_open(back, "numpy") as file:
        assert file.metadata() == {"format": "pt", "note": "größer"}


def test_regular_expressions(model, tmp_path):
    path, tensors = model
    small = tmp_path / "small.safetensors"

    def quantized(*arguments):
        run("quantize", path, small, "--format", "int8:row", *arguments)
        return {name for name, tensor in inspect(small)[1].items() if "format" in tensor}

    assert quantized() == set(MATRICES)
    assert quantized("--exclude", "lm_head") == set(MATRICES) - {"lm_head.weight"}
    assert quantized("--include", r"layers\.\d+\.up") == {"layers.0.up.weight", "layers.1.up.weight"}
    assert quantized("--include", "^layers", "--exclude", r"\.0\.", "--exclude", "experts$") == {"layers.1.up.weight"}
    assert quantized("--include", "head", "--include", "odd") == {"lm_head.weight", "odd.weight"}
    assert quantized("--include", "nothing at all") == set()
    assert all(same_bits(value, tensors[name]) for name, value in load_file(small).items())
    assert "--exclude (" in refused("quantize", path, small, "--format", "int8:row", "--exclude", "(")


def test_a_second_pass_leaves_the_planes_alone(model, tmp_path):
    path, tensors = model
    first, second, back = (tmp_path / f"{name}.safetensors" for name in ("first", "second", "back"))
    run("quantize", path, first, "--format", "int4:g128", "--include", "up")
    run("quantize", first, second, "--format", "int8:row")
    formats = {name: tensor.get("format") for name, tensor in inspect(second)[1].items()}
    assert formats["layers.0.up.weight"] == "int4:g128" and formats["lm_head.weight"] == "int8:row"
    run("dequantize", second, back)
    assert set(load_file(back)) == set(tensors)


@pytest.mark.parametrize("dtype, numpy_dtype", [("F32", np.float32), ("F16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_dequantize_to_a_dtype(model, tmp_path, dtype, numpy_dtype):
    path, tensors = model
    small, back = tmp_path / "small.safetensors", tmp_path / "back.safetensors"
    run("quantize", path, small, "--format", "q8_0", "--exclude", "lm_head")
    run("dequantize", small, back, "--dtype", dtype)
    restored = load_file(back)
    assert restored["layers.0.up.weight"].dtype == numpy_dtype
    assert restored["layers.0.down.weight"].dtype == numpy_dtype
    assert same_bits(restored["lm_head.weight"], tensors["lm_head.weight"])


def test_threads_do_not_change_the_bytes(model, tmp_path):
    path, _ = model
    outputs = []
    for threads in (1, 3):
        output = tmp_path / f"{threads}.safetensors"
        run("quantize", path, output, "--format", "nvfp4", "--threads", threads)
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]


def test_unaligned_tensors(tmp_path):
    """The format does not promise that numbers are aligned to their size."""
    header = {
        "byte": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "weight": {"dtype": "F32", "shape": [4, 64], "data_offsets": [1, 1025]},
    }
    weight = np.random.default_rng(2).standard_normal((4, 64), dtype=np.float32)
    text = json.dumps(header).encode()
    path, small, back = (tmp_path / f"{name}.safetensors" for name in ("odd", "small", "back"))
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\x07" + weight.tobytes())
    run("quantize", path, small, "--format", "int8:row")
    run("dequantize", small, back)
    restored = load_file(back)
    assert restored["byte"].tolist() == [7]
    assert relative_error(restored["weight"], weight) < 0.012


def test_inspect(model, tmp_path):
    path, tensors = model
    contents, listed = inspect(path)
    assert contents["metadata"] == {"format": "pt", "note": "größer"}
    assert {name: tensor["shape"] for name, tensor in listed.items()} == {name: list(value.shape) for name, value in tensors.items()}
    assert contents["total"]["tensors"] == len(tensors) and contents["total"]["quantized_tensors"] == 0
    assert contents["total"]["bytes"] == sum(tensor.nbytes for tensor in tensors.values())

    small = tmp_path / "small.safetensors"
    run("quantize", path, small, "--format", "uint4:g128:asym")
    contents, listed = inspect(small)
    assert contents["total"]["quantized_tensors"] == len(MATRICES)
    up = listed["layers.0.up.weight"]
    assert up["format"] == "uint4:g128:asym" and up["dtype"] == "F32" and up["bytes"] == 64 * (256 + 4 * 2 + 4)
    text = run("inspect", small).stdout
    for name in tensors:
        assert len(re.findall(rf"^{re.escape(name)}  ", text, re.MULTILINE)) == 1
    assert ".codes" not in text and "größer" in text


def test_names_cannot_command_the_terminal(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"evil\x1b[2Jname": np.ones((2, 2), np.float32)}, path)
    assert "\x1b" not in run("inspect", path).stdout
    assert "\x1b" not in run("quantize", path, tmp_path / "small.safetensors", "--format", "int8:row").stdout


def test_bad_input(model, tmp_path):
    path, _ = model
    out = tmp_path / "out.safetensors"
    broken, plain = tmp_path / "broken.safetensors", tmp_path / "notes.txt"
    broken.write_bytes(path.read_bytes()[:-5])
    plain.write_text("not a checkpoint, only words")
    assert "missing.safetensors" in refused("quantize", tmp_path / "missing.safetensors", out, "--format", "int8:row")
    assert "broken.safetensors" in refused("quantize", broken, out, "--format", "int8:row")
    assert "notes.txt" in refused("inspect", plain)
    assert "notes.txt" in refused("dequantize", plain, out)
    assert "int5:row" in refused("quantize", path, out, "--format", "int5:row")
    assert "no quantized tensors" in refused("dequantize", path, out)
    assert "no/such/folder" in refused("quantize", path, tmp_path / "no/such/folder/out.safetensors", "--format", "int8:row")
    assert "threads" in refused("quantize", path, out, "--format", "int8:row", "--threads", "-1")
    assert "the same file" in refused("quantize", path, path, "--format", "int8:row")
    link = tmp_path / "link.safetensors"
    link.hardlink_to(path)
    assert "the same file" in refused("quantize", path, link, "--format", "int8:row")
    assert not out.exists() and not list(tmp_path.glob(".lowbit-*"))
    assert load_file(path).keys()


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_quantize_leaves_nothing(tmp_path, number, status):
    path, out = tmp_path / "large.safetensors", tmp_path / "out.safetensors"
    # Long enough to be interrupted: this format searches for its scales.
    values = np.random.default_rng(3).standard_normal((512, 4096), dtype=np.float32)
    save_file({f"layers.{i}.weight": values for i in range(8)}, path)
    program = subprocess.Popen(
        [PROGRAM, "quantize", path, out, "--format", "q2_k", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A test run in the background inherits an ignored SIGINT, and the program leaves ignored signals ignored.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".lowbit-*")):
        assert program.poll() is None and time.monotonic() < deadline, program.communicate()
        time.sleep(0.01)
    program.send_signal(number)
    output, _ = program.communicate(timeout=60)
    assert program.returncode == status
    assert output == b""
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def peak_memory(*arguments):
    """The most memory that the program had in use, as far as one can see by asking often."""
    program = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL)
    peak = 0
    while program.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # it may end at any moment, and has no executable then
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{program.pid}/status").read_text())
            if found and Path(f"/proc/{program.pid}/exe").samefile(PROGRAM):  # not Python's own, between fork and exec
                peak = max(peak, 1024 * int(found[1]))
        time.sleep(0.001)
    assert program.returncode == 0
    return peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_memory_stays_within_a_few_tensors(tmp_path):
    path, out, back = (tmp_path / f"{name}.safetensors" for name in ("large", "out", "back"))
    values = np.random.default_rng(4).standard_normal((512, 2048), dtype=np.float32)
    save_file({f"layers.{i}.weight": values for i in range(48)}, path)
    assert path.stat().st_size > 200e6
    assert 0 < peak_memory("quantize", path, out, "--format", "int8:row") < 64e6
    assert 0 < peak_memory("dequantize", out, back) < 64e6


def test_bench(tmp_path):
    path = tmp_path / "bench.json"
    shapes = ["--shape", "1x64x256", "--shape", "3x64x256"]
    formats = ["--format", "int8:row", "--format", "q4_0"]
    text = run("bench", "--op", "all", *shapes, *formats, "--seconds", "0.01", "--json", path, "--commit", "abc").stdout
    result = json.loads(path.read_text())
    assert result["commit"] == "abc" and result["version"] and result["date"]
    assert result["machine"]["read_gigabytes_per_second"] > 0 and result["machine"]["integer_peaks"]
    rows = result["rows"]
    assert [(row["op"], row["format"], row["m"]) for row in rows if row["op"] == "matmul"] == [
        ("matmul", "int8:row", 1), ("matmul", "q4_0", 1), ("matmul", "int8:row", 3), ("matmul", "q4_0", 3),
    ]  # fmt: skip
    assert [row["format"] for row in rows if row["op"] == "quantize"] == ["int8:row", "q4_0"]
    assert [row["format"] for row in rows if row["op"] == "dequantize"] == ["int8:row", "q4_0"]
    kernels = {kernel["name"] for kernel in json.loads(run("info", "--json").stdout)["kernels"]}
    for row in rows:
        assert row["microseconds"] > 0 and row["gigabytes_per_second"] > 0 and row["runs"] >= 5
        assert row["kernel"] in kernels and row["kernel"] in text
    for row in (row for row in rows if row["op"] == "matmul"):
        assert row["gigaflops"] > 0 and row["over_fp32"] > 0 and row["floor_microseconds"] > 0
        assert row["time_over_floor"] == pytest.approx(row["microseconds"] / row["floor_microseconds"])
    assert max(map(len, text.splitlines())) <= 122


def test_bench_with_quantized_tokens_and_a_forced_kernel(tmp_path):
    path = tmp_path / "bench.json"
    run("bench", "--op", "matmul", "--shape", "2x64x256", "--format", "q4_0", "--x-format", "q8_1", "--seconds", "0.01", "--json", path)
    (row,) = json.loads(path.read_text())["rows"]
    assert row["x_format"] == "q8_1"
    shape = ["--op", "matmul", "--shape", "2x64x256", "--format", "int8:row", "--seconds", "0.01", "--threads", "1", "--json", path]
    run("bench", *shape, "--kernel", "reference")
    (row,) = json.loads(path.read_text())["rows"]
    assert row["kernel"] == "reference" and json.loads(path.read_text())["machine"]["threads"] == 1
    assert "no_such_kernel" in refused("bench", *shape, "--kernel", "no_such_kernel")
    assert "--shape 3xx4" in refused("bench", "--shape", "3xx4")


def test_peak():
    text = run("bench", "--op", "peak", "--seconds", "0.02").stdout
    assert "GB/s" in text and "GOP/s" in text


def test_demo():
    text = run("demo", "--rows", "256", "--columns", "1024").stdout
    names = [row["name"] for row in json.loads(run("formats", "--json").stdout)]
    assert all(re.search(f"^{re.escape(name)} ", text, re.MULTILINE) for name in names)
    for pair in ["q4_0 x q8_1", "q8_0 x q8_1", "int8:row x int8:row"]:
        assert pair in text
    assert "*" not in text  # so few rows are all quantized
    assert max(map(len, text.splitlines())) <= 130
    assert "\x1b" not in text


def test_demo_with_columns_that_not_every_format_takes():
    text = run("demo", "--rows", "64", "--columns", "100", "--tokens", "1").stdout
    assert re.search(r"^q4_0 +q4_0: .*K = 100", text, re.MULTILINE)
    assert re.search(r"^int4:g128 +\d", text, re.MULTILINE)


def test_output_that_cannot_be_written():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr
