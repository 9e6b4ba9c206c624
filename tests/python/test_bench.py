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
from bench import block, cases, ceilings, convolutions, plot, results, tables, timing  # noqa: E402
from bench.__main__ import main  # noqa: E402


def make_row(**changes):
    return results.Row(**{
        "op": "matmul", "format": "int4:g128", "activation": "bf16", "m": 16, "n": 28672, "k": 4096, "kernel": "ampere_tiles_bf16",
        "us": 31.0, "floor_us": 15.0, "peers": {"torch_bf16": 62.0}, **changes,
    })  # fmt: skip


def make_document(rows):
    return results.document(rows, "1234567", "NVIDIA H200", {"torch": "2.11"})


# The documents


def test_documents_quote_the_results_file():
    """README.md and docs/ say nothing but what python bench/tables.py makes of it."""
    assert tables.main(["--check"]) == 0


def test_tables_are_made_of_the_rows_they_name(tmp_path):
    path = tmp_path / "results.json"
    rows = [
        make_row(m=64, us=20.0, floor_us=15.0, peers={"torch_bf16": 50.0, "torch_int4": 400.0}),
        make_row(m=1, us=18.0, floor_us=15.0), make_row(m=1, us=16.5, floor_us=15.0, chain=True),
    ]  # fmt: skip
    path.write_text(json.dumps(make_document(rows)))
    figures = tables.Figures(path)
    pair = "int4:g128 x bf16"
    assert tables.readme_cells(figures, [], [pair, "64", "0", "0", "1.00 x bf16 cuBLAS, 9 x torch's int4"]) == [
        pair, "64", "20", "0.75", "2.50 x bf16 cuBLAS, 20.00 x torch's int4"
    ]  # fmt: skip
    header = ["weight x tokens", "against", "outputs x inputs", "64"]
    assert tables.hopper_cells(figures, header, [pair, "bf16", "28672 x 4096", ""])[3] == "2.50"
    assert tables.decode_cells(figures, ["weight x tokens", "tokens", "28672 x 4096"], [pair, "1", ""])[2] == "1.20 / 1.10"
    with pytest.raises(KeyError):
        tables.hopper_cells(figures, header, [pair, "bf16", "8192 x 28672", ""])
    with pytest.raises(ValueError, match="no table begins with"):
        list(tables.rewritten("text", "| weight |", tables.hopper_cells, figures))


# Which rows


def test_default_rows():
    found = cases.select()
    assert len(found) == len(set(found)) == 13 * 6 * 5 + 27 * 4 * 7 + 1 + 2 * 5 * 2
    assert {case.m for case in found if case.op == "matmul"} == {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384}
    assert "matmul int1:row int1:row 16384x16384x16384" in map(str, found)
    for case in found:
        if case.op == "matmul" and case.m != cases.LARGE_BITS:
            few = case.m <= cases.FEW_TOKENS
            assert (case.n, case.k) in (cases.FEW_WEIGHTS if few else cases.MANY_WEIGHTS)
            assert (case.format, case.activation) in (cases.FEW_FORMATS if few else cases.MANY_FORMATS)
    assert "matmul int4:g128 bf16 16x28672x4096" in map(str, found)
    assert "quantize q8_1 bf16 16384x8192x8192" in map(str, found)


def test_convolutions():
    found = convolutions.select()
    assert len(found) == len(set(map(str, found))) == len(convolutions.LAYERS) * len(convolutions.BATCHES) * 2
    assert "conv2d int1 3x3/2 bits 56x56 100352x128x576" in map(str, found)
    assert set(convolutions.select(quick=True)) < set(found)
    assert [case.images for case in convolutions.select(only="7x7 6272x512x4608")] == ["bits", "fp16"]


def test_the_tokens_of_a_weight_follow_each_other():
    """It is quantized once for all of them."""
    weights = [(case.format, case.activation, case.n, case.k, case.m > cases.FEW_TOKENS) for case in cases.select() if case.op == "matmul"]
    runs = [weight for index, weight in enumerate(weights) if index == 0 or weights[index - 1] != weight]
    assert len(runs) == len(set(weights))


def test_quick_rows_are_some_of_the_default_ones():
    quick = [case for case in cases.select(quick=True) if case.op == "matmul"]
    assert {(case.m, case.n, case.k) for case in quick} == {(m, 28672, 4096) for m in (1, 16, 4096)}
    assert set(quick) < set(cases.select())


@pytest.mark.parametrize(
    "only, count",
    [("matmul int4:g128 bf16 16x", 6), ("^matmul .*x28672x4096$", 13 * 5 + 27 * 7), ("^dequantize", 10), ("no such row", 0)],
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
    assert times.without("peer").against("ours") == {"peers": {}, "ratios": {}}


def test_a_row_of_few_tokens_is_short():
    usual, quick = timing.Plan(), timing.Plan(rounds=5, row_seconds=0.8)
    for plan in (usual, quick):
        few = plan.for_few_tokens()
        assert few.fewest_rounds <= few.rounds <= plan.rounds and few.row_seconds < plan.row_seconds and few.graph_us < plan.graph_us


def test_lines():
    """The floor as a multiple where a product is a read of its weight, as a share elsewhere."""
    assert "2.07 x" in results.line(make_row(ratios={"torch_bf16": 2.0})) and "chain" not in results.line(make_row(peers={}))
    assert results.line(make_row(chain=True, peers={})).startswith("matmul chain int4:g128")
    assert "48 %" in results.line(make_row(m=64, peers={})) and "48 %" in results.line(make_row(op="quantize", peers={}))


def test_block():
    rates = ceilings.Ceilings(read=1e3, copy=1e3, operations={"bf16": 1e6})
    linears = ((192, 128), (128, 128), (512, 128), (128, 256))
    line = block.measure(torch.device("cpu"), timing.CpuTimer(), timing.Plan(rounds=3), rates, linears)
    assert line.startswith("llama-3-8b block (192x128, 128x128, 512x128, 128x256; int4:g128 x bf16, 1 token, chained): ")
    assert " x the sum of the floors, " in line


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
            device = Path(results.file_name(results.read(path)["device"])).stem
            assert path.stem in (device, *(f"{device}-{part}" for part in ("tokens", "ampere")))


# The drawing


def test_plot_series():
    rows = [vars(make_row(m=m, us=us)) for m, us in ((64, 62.0), (16, 31.0))]
    rows.append(vars(make_row(m=16, us=20.0, chain=True)))  # not drawn: it would be a second point of the same line
    assert plot.speedups(rows) == {(28672, 4096): {"int4:g128 x bf16": [(16, 2.0), (64, 1.0)]}}
    [(tokens, reached, roof), _] = plot.roofline(rows)[28672, 4096]["int4:g128 x bf16"]
    assert tokens == 16 and reached == pytest.approx(2 * 16 * 28672 * 4096 / 31e6) and roof == pytest.approx(reached * 31 / 15)


def test_plot_steps():
    rows = [{**vars(make_row(m=m, us=us)), "chain": False} for m, us in ((16, 10.0), (17, 11.0), (32, 20.0), (33, 24.0), (64, 40.0))]
    [step] = plot.steps(plot.times(rows))
    assert step == "int4:g128 x bf16 28672 x 4096: 32 tokens 20.0 µs, 33 tokens 24.0 µs (1.20 x)"


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
    assert plot.main([str(path), "--time", "--output", str(tmp_path / "time.svg")]) == 0
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
    products = [row for row in rows if row["op"] == "matmul"]
    assert [row["chain"] for row in products] == [False, True] * len(cases.FEW_FORMATS)
    assert all("lowbit" not in peer for row in products for peer in row["peers"])
    assert [row["op"] for row in rows].count("stream") == 2
    assert all(row["kernel"].startswith("cpu_") for row in rows if row["op"] != "stream")
    assert all("torch_bf16" in row["peers"] for row in rows if row["op"] == "matmul")
    assert f"{len(rows)} rows" in done.stdout.splitlines()[-1]


@needs_cuda
def test_a_few_rows_on_the_gpu(tmp_path):
    path = tmp_path / "few.json"
    done = run("--quick", "--shape", "16x256x512", "--only", "int8:row", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {(row["op"], row["format"], row["activation"], row["chain"]): row for row in results.read(path)["rows"]}
    for chain in (False, True):
        peers = rows["matmul", "int8:row", "int8:row", chain]["peers"]
        assert set(peers) == {"torch_bf16", "torch_int_mm", "stream_all", "stream_all_resident"}
    found = {key[:3] for key in rows}
    assert ("quantize", "int8:row", "bf16") in found and ("stream", "read", "") in found and ("stream", "copy", "") in found


@needs_cuda
def test_a_convolution_on_the_gpu(tmp_path):
    path = tmp_path / "conv.json"
    done = run("--quick", "--only", "conv2d int1 3x3/1 .* 7x7", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in results.read(path)["rows"] if row["op"] == "conv2d"]
    assert [row["activation"] for row in rows] == ["bits 7x7", "fp16 7x7"] and all("torch_cudnn" in row["peers"] for row in rows)


def test_a_forced_kernel(tmp_path):
    path = tmp_path / "forced.json"
    done = run("--device", "cpu", "--shape", "4x64x256", "--only", "^matmul int", "--kernel", "cpu_portable_weight4*", "--output", path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in results.read(path)["rows"] if row["op"] == "matmul"]
    assert [(row["format"], row["kernel"], row["chain"]) for row in rows] == [
        (format, "cpu_portable_weight4", chain) for format in ("int4:g128", "int4:g32") for chain in (False, True)
    ]
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
