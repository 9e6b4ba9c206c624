"""python bench/tables.py [--check]: writes the figures of bench/results/nvidia-h200.json into the tables of README.md and docs/.

Which rows a table has stands in the documents; here is how a cell follows from a row of the file. --check changes nothing, and says with
the exit status whether everything agrees."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "nvidia-h200.json"
PEERS = {"bf16": "torch_bf16", "bf16 cuBLAS": "torch_bf16", "torch's int4": "torch_int4", "`_int_mm`": "torch_int_mm",
         "`torch._int_mm`": "torch_int_mm", "`_scaled_mm`": "torch_scaled_mm", "`torch._scaled_mm`": "torch_scaled_mm"}  # fmt: skip


class Figures:
    def __init__(self, path: Path = RESULTS):
        self.rows = {
            (row["op"], row["format"], row["activation"], row["m"], row["n"], row["k"], row["chain"]): row
            for row in json.loads(path.read_text())["rows"]
        }

    def product(self, pair: str, tokens: int, shape: str, chain: bool = False) -> dict:
        weight, x = pair.split(" x ")
        n, k = map(int, shape.split(" x "))
        return self.rows["matmul", weight, x.replace(" to ", ">"), tokens, n, k, chain]

    def convolution(self, kernel: str, inputs: int, outputs: int, side: int, images: int, kind: str) -> dict:
        size, stride = int(kernel[0]), int(kernel.split("stride ")[1]) if "stride" in kernel else 1
        pixels = images * (side // stride) ** 2
        return self.rows["conv2d", f"int1 {size}x{size}/{stride}", f"{kind} {side}x{side}", pixels, outputs, inputs * size**2, False]


def speed(row: dict, peer: str) -> str:
    return f"{row['peers'][PEERS[peer]] / row['us']:.2f}"


def readme_cells(figures: Figures, _: list[str], cells: list[str]) -> list[str]:
    row = figures.product(cells[0], int(cells[1]), "28672 x 4096")
    against = re.sub(r"[0-9.]+ x ([^,(]*[^ ,(])", lambda found: f"{speed(row, found[1])} x {found[1]}", cells[4])
    return [*cells[:2], f"{row['us']:.0f}", f"{row['floor_us'] / row['us']:.2f}", against]


def hopper_cells(figures: Figures, header: list[str], cells: list[str]) -> list[str]:
    return [*cells[:3], *(speed(figures.product(cells[0], int(tokens), cells[2]), cells[1]) for tokens in header[3:])]


def decode_cells(figures: Figures, header: list[str], cells: list[str]) -> list[str]:
    def times(shape: str, chain: bool) -> str:
        row = figures.product(cells[0], int(cells[1]), shape, chain)
        return f"{row['us'] / row['floor_us']:.2f}"

    return [*cells[:2], *(f"{times(shape, False)} / {times(shape, True)}" for shape in header[2:])]


def binary_cells(figures: Figures, header: list[str], cells: list[str]) -> list[str]:
    found = []
    for column in header[4:]:
        images, kind = column.split(" images, ")
        row = figures.convolution(cells[0], int(cells[1]), int(cells[2]), int(cells[3].split(" x ")[0]), int(images), kind)
        found.append(f"{row['us']:.1f} ({row['peers']['torch_cudnn'] / row['us']:.2f})")
    return [*cells[:4], *found]


# Document, how the table's header begins, and how its cells follow.
Cells = Callable[[Figures, list[str], list[str]], list[str]]
TABLES: tuple[tuple[str, str, Cells], ...] = (
    ("README.md", "| weight x tokens | tokens | us |", readme_cells),
    ("docs/hopper.md", "| weight x tokens | against |", hopper_cells),
    ("docs/decode.md", "| weight x tokens | tokens | 28672 x 4096 |", decode_cells),
    ("docs/binary.md", "| kernel | channels | outputs |", binary_cells),
)


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rewritten(text: str, begin: str, cells: Cells, figures: Figures) -> Iterator[str]:
    """The lines of a document, with those of the table that begins so made anew."""
    header: list[str] | None = None
    tables = 0
    for line in text.split("\n"):
        if line.startswith(begin):
            header, tables = cells_of(line), tables + 1
        elif not line.startswith("|"):
            header = None
        elif header and not line.startswith("| ---"):
            line = "| " + " | ".join(cells(figures, header, cells_of(line))) + " |"
        yield line
    if tables == 0:
        raise ValueError(f"no table begins with {begin}")


def conversions(text: str, figures: Figures) -> str:
    """README's sentence about conversions: `to` and `back from` a format, as a part of the copy rate."""

    def part(verb: str, format: str) -> str:
        row = figures.rows[verb, format, "bf16", 16384, 8192, 8192, False]
        return f"{row['floor_us'] / row['us']:.2f}"

    def sentence(found: re.Match) -> str:
        halves = found[0].split("back from")
        verbs = ("quantize", "dequantize")
        return "back from".join(
            re.sub(r"([a-z][\w:]*) [0-9]\.[0-9]+", lambda one, verb=verb: f"{one[1]} {part(verb, one[1])}", half)
            for half, verb in zip(halves, verbs, strict=True)
        )

    return re.sub(r"Converting 16384 x 8192 bf16, as a part of the copy rate: .*", sentence, text)


def documents(figures: Figures) -> dict[Path, str]:
    """What the documents should say."""
    found = {}
    for name, begin, cells in TABLES:
        path = ROOT / name
        found[path] = "\n".join(rewritten(path.read_text(), begin, cells, figures))
    readme = ROOT / "README.md"
    found[readme] = conversions(found[readme], figures)
    return found


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python bench/tables.py", description="The measured tables of README.md and docs/.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a document says something else")
    check = parser.parse_args(given).check
    differing = {path: text for path, text in documents(Figures()).items() if path.read_text() != text}
    for path, text in differing.items():
        print(f"{path.relative_to(ROOT)}: {'does not agree with' if check else 'now as in'} {RESULTS.relative_to(ROOT)}")
        if not check:
            path.write_text(text)
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
