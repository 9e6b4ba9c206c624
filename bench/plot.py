"""Draws a results file: python bench/plot.py bench/results/nvidia-h200.json [--time] [--output FILE.png|svg]

A column for each weight. Above: how many times as fast as torch's bf16 product each format is, against the number of tokens. Below: the
roofline, TFLOP/s against the number of tokens (the operations that each byte of the weight is good for), dashed the floor of the row,
which no kernel can pass: it rises where memory is the limit and is flat where arithmetic is.

--time: the time against the number of tokens instead, and a list of the steps from some tokens to one more that take STEP times as long.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

PEER = "torch_bf16"
STEP = 1.15
Points = list[tuple[float, ...]]
Panels = dict[tuple[int, int], dict[str, Points]]  # by weight (outputs, inputs), then by the formats of weight and tokens


def _products(rows: list[dict], point) -> Panels:
    found: dict = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["op"] == "matmul" and not row["chain"] and (values := point(row)) is not None:
            found[row["n"], row["k"]][f"{row['format']} x {row['activation']}"].append((row["m"], *values))
    return {weight: {name: sorted(points) for name, points in lines.items()} for weight, lines in found.items()}


def speedups(rows: list[dict]) -> Panels:
    """(tokens, speed-up)"""
    return _products(rows, lambda row: (row["peers"][PEER] / row["us"],) if PEER in row["peers"] else None)


def roofline(rows: list[dict]) -> Panels:
    """(tokens, TFLOP/s, TFLOP/s at the floor)"""

    def point(row: dict) -> tuple[float, float]:
        operations = 2 * row["m"] * row["n"] * row["k"]
        return operations / row["us"] / 1e6, operations / row["floor_us"] / 1e6

    return _products(rows, point)


def times(rows: list[dict]) -> Panels:
    """(tokens, µs)"""
    return _products(rows, lambda row: (row["us"],))


def steps(panels: Panels) -> list[str]:
    """Where one token more takes more than STEP times as long."""
    return [
        f"{name} {weight[0]} x {weight[1]}: {tokens} tokens {us:.1f} µs, {more} tokens {longer:.1f} µs ({longer / us:.2f} x)"
        for weight, lines in panels.items()
        for name, points in lines.items()
        for (tokens, us), (more, longer) in zip(points, points[1:])
        if more == tokens + 1 and longer > STEP * us
    ]


def _label(axes, title: str, vertical: str) -> None:
    axes.set(title=title, xlabel="tokens", ylabel=vertical)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.grid(True, alpha=0.3)


def _draw_speedups(axes, weight: tuple[int, int], lines: dict[str, Points], colors: dict[str, tuple]) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*points), marker="o", markersize=4, color=colors[name])
    axes.axhline(1, color="grey", linewidth=1)
    _label(axes, f"{weight[0]} x {weight[1]}", "times as fast as torch bf16")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")


def _draw_roofline(axes, weight: tuple[int, int], lines: dict[str, Points], colors: dict[str, tuple]) -> None:
    for name, points in lines.items():
        tokens, reached, roof = zip(*points)
        axes.plot(tokens, reached, marker="o", markersize=4, color=colors[name])
        axes.plot(tokens, roof, linestyle="--", linewidth=1, color=colors[name])
    _label(axes, f"{weight[0]} x {weight[1]}, dashed: the floor", "TFLOP/s")
    axes.set_yscale("log")


def _draw_times(axes, weight: tuple[int, int], lines: dict[str, Points], colors: dict[str, tuple]) -> None:
    for name, points in lines.items():
        axes.plot(*zip(*points), marker="o", markersize=3, color=colors[name])
    _label(axes, f"{weight[0]} x {weight[1]}", "µs")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")


def draw(content: dict, output: Path, time: bool = False) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    fast, roof, taken = speedups(content["rows"]), roofline(content["rows"]), times(content["rows"])
    if not roof:
        raise ValueError("the file has no matmul rows, so there is nothing to draw")
    names = list(dict.fromkeys(name for lines in roof.values() for name in lines))
    colors = {name: pyplot.get_cmap("tab20")(index % 20) for index, name in enumerate(names)}
    height = 1 if time else 2
    figure, axes = pyplot.subplots(height, len(roof), figsize=(max(5 * len(roof), 8), 4.5 * height), squeeze=False, layout="constrained")
    for column, weight in enumerate(roof):
        if time:
            _draw_times(axes[0][column], weight, taken[weight], colors)
        else:
            _draw_speedups(axes[0][column], weight, fast.get(weight, {}), colors)
            _draw_roofline(axes[1][column], weight, roof[weight], colors)
    figure.suptitle(f"lowbit {content['commit']} on {content['device']}, {content['date'][:10]}")
    handles = [Line2D([], [], color=colors[name], marker="o", markersize=4, label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    figure.savefig(output, dpi=130)
    pyplot.close(figure)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draws a results file of the benchmark.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--time", action="store_true", help="the time against the number of tokens, and where it jumps")
    parser.add_argument("--output", type=Path, help="a .png or .svg; default: beside the file, as .png")
    arguments = parser.parse_args(given)
    output = arguments.output or arguments.file.with_suffix(".png")
    content = json.loads(arguments.file.read_text())
    if arguments.time:
        found = steps(times(content["rows"]))
        print("\n".join(found) or f"no step from some tokens to one more takes more than {STEP} times as long")
    try:
        draw(content, output, arguments.time)
    except ImportError as error:
        print(f"plot: matplotlib does not import here ({error}); run: pip install matplotlib", file=sys.stderr)
        return 2
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
