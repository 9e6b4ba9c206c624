"""The benchmark: which rows it has, how it times, the form of its file, its drawing; and a run of the whole on the CPU, as a trial."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from torch_cases import ROOT, lowbit, needs_cuda, torch

sys.path.insert(0, str(ROOT))
from bench import cases, plot, results, timing  # noqa: E402
from bench.__main__ import main  # noqa: E402


def make_row(**changes):
    return results.Row(**{
        "op": "matmul", "format": "int4:g128", "activation": "bf16", "m": 16, "n": 28672, "k": 4096, "kernel": "ampere_tiles_bf16",
        "us": 31.0, "floor_us": 15.0, "peers": {"torch_bf16": 62.0}, **changes,
    })  # fmt: skip


def make_document(rows):
    return results.document(rows, "1234567", "NVIDIA H200", {"torch": "2.11"})


# Which rows


def test_default_rows():
    found = cases.select()
    assert len(found) == len(set(found)) == 7 * 3 * 6 + 2 * 5 * 2
    assert "matmul int4:g128 bf16 16x28672x4096" in map(str, found)
    assert "quantize q8_1 bf16 16384x8192x8192" in map(str, found)


def test_quick_rows_are_some_of_the_default_ones():
    quick = [case for case in cases.select(quick=True) if case.op == "matmul"]
    assert {(case.m, case.n, case.k) for case in quick} == {(16, 28672, 4096), (4096, 28672, 4096)}
    assert set(quick) < set(cases.select())


@pytest.mark.parametrize(
    "only, count", [("matmul int4:g128 bf16 16x", 3), ("^matmul .*28672x4096$", 7 * 6), ("^dequantize", 10), ("no such row", 0)]
)
def test_only(only, count):
    assert len(cases.select(only=only)) == count


# How it times


def test_a_candidate_that_raises_is_left_out(capsys):
    def refuse():
        raise RuntimeError("not on this chip")

    candidates = [timing.Candidate("ours", lambda: [lambda: 1] * 3), timing.Candidate("peer", lambda: [refuse])]
    times = timing.measure(candidates, timing.CpuTimer(), timing.Plan(), "a row")
    assert set(times.rounds) == {"ours"} and len(times.rounds["ours"]) == timing.Plan().rounds
    assert capsys.readouterr().err == "bench: a row: peer is left out: not on this chip\n"


def test_ratios_are_medians_of_the_rounds():
    times = timing.Times({"ours": [1.0, 2.0, 10.0], "peer": [3.0, 4.0, 10.0]})
    assert times.us("ours") == 2 and times.ratio("peer", "ours") == 2
    assert times.against("ours") == {"peers": {"peer": 4.0}, "ratios": {"peer": 2.0}}


# The file


def test_file(tmp_path):
    path = tmp_path / "folder" / results.file_name("NVIDIA H200")
    assert path.name == "nvidia-h200.json"
    results.write(make_document([make_row(), make_row(op="stream", peers={})]), path)
    content = json.loads(path.read_text())
    assert content == results.read(path)
    assert list(content) == ["commit", "date", "device", "versions", "rows"]
    assert content["rows"][0] == {
        "op": "matmul", "format": "int4:g128", "activation": "bf16", "m": 16, "n": 28672, "k": 4096, "kernel": "ampere_tiles_bf16",
        "us": 31.0, "floor_us": 15.0, "chain": False, "peers": {"torch_bf16": 62.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"op": "sort"}, {"us": 0.0}, {"us": float("nan")}, {"m": "16"}, {"chain": 0}, {"peers": {"torch_bf16": None}}, {"extra": 1}],
    ids=str,
)  # fmt: skip
def test_a_file_of_another_form_is_refused(change):
    content = make_document([make_row()])
    content["rows"][0].update(change)
    with pytest.raises(ValueError, match=r"rows\[0\]"):
        results.check(content)


def test_committed_results():
    for path in (ROOT / "bench" / "results").glob("*.json"):
        if path.name != "cpu.json":  # written by lowbit bench
            assert path.name == results.file_name(results.read(path)["device"])


# The drawing


def test_plot_series():
    rows = [vars(make_row(m=m, us=us)) for m, us in ((64, 62.0), (16, 31.0))]
    assert plot.speedups(rows) == {(28672, 4096): {"int4:g128 x bf16": [(16, 2.0), (64, 1.0)]}}
    [(tokens, reached, roof), _] = plot.roofline(rows)[28672, 4096]["int4:g128 x bf16"]
    assert tokens == 16 and reached == pytest.approx(2 * 16 * 28672 * 4096 / 31e6) and roof == pytest.approx(reached * 31 / 15)


def test_plot_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed here")
    rows = [
        make_row(format=format, m=m, n=n, peers={} if format == "nf4:g64" else {"torch_bf16": 60.0 + m})
        for format in ("int4:g128", "nf4:g64") for m in (1, 16, 4096) for n in (6144, 28672)
    ]  # fmt: skip
    path = tmp_path / "chip.json"
    results.write(make_document(rows), path)
    assert plot.main([str(path)]) == 0
    assert (tmp_path / "chip.png").read_bytes().startswith(b"\x89PNG")
    assert plot.main([str(path), "--output", str(tmp_path / "chip.svg")]) == 0
    xml.etree.ElementTree.parse(tmp_path / "chip.svg")


# The whole


def run(*arguments):
    folders = {"PYTHONPATH": str(Path(lowbit.__file__).parents[1]), "LOWBIT_LIBRARY_DIR": str(lowbit._load.FOLDER)}
    return subprocess.run(
        [sys.executable, "-m", "bench", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, **folders},
    )  # fmt: skip


def test_trial_on_the_cpu(tmp_path):
    path = tmp_path / "trial.json"
    done = run("--device", "cpu", "--shape", "4x64x256", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = results.read(path)["rows"]
    assert [row["op"] for row in rows].count("matmul") == 7 and [row["op"] for row in rows].count("stream") == 2
    assert all(row["kernel"].startswith("cpu_") for row in rows if row["op"] != "stream")
    assert all("torch_bf16" in row["peers"] for row in rows if row["op"] == "matmul")
    assert f"{len(rows)} rows" in done.stdout.splitlines()[-1]


@needs_cuda
def test_a_few_rows_on_the_gpu(tmp_path):
    path = tmp_path / "few.json"
    done = run("--quick", "--shape", "16x256x512", "--only", "int8:row", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {(row["op"], row["format"], row["activation"]): row for row in results.read(path)["rows"]}
    assert {"torch_bf16", "torch_int_mm"} == set(rows["matmul", "int8:row", "int8:row"]["peers"])
    assert ("quantize", "int8:row", "bf16") in rows and ("stream", "read", "") in rows and ("stream", "copy", "") in rows


def test_a_forced_kernel(tmp_path):
    path = tmp_path / "forced.json"
    done = run("--device", "cpu", "--shape", "4x64x256", "--only", "^matmul int", "--kernel", "cpu_portable_weight*", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in results.read(path)["rows"] if row["op"] == "matmul"]
    assert [row["kernel"] for row in rows] == ["cpu_portable_weight4", "cpu_portable_weight8"]
    assert "matmul int8:row int8:row 4x64x256: none of these kernels can run it" in done.stderr


@pytest.mark.parametrize(
    "arguments, text",
    [(["--shape", "4x4"], "use MxNxK"), (["--kernel", "nonsense"], "no kernel of this build"), (["--only", "("], "--only (: ")],
)
def test_wrong_arguments(arguments, text, capsys):
    try:
        status = main(["--device", "cpu", *arguments])
    except SystemExit as stop:
        status = stop.code
    assert status == 2 and text in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu(capsys):
    assert main([]) == 2 and capsys.readouterr().err == "bench: torch sees no CUDA device here\n"
