"""Rows, the table that is printed, and the file."""

import datetime
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .cases import FEW_TOKENS

OPS = ("matmul", "quantize", "dequantize", "moe", "conv2d", "stream")
ROW_FIELDS = {
    "op": str, "format": str, "activation": str, "m": int, "n": int, "k": int, "kernel": str, "us": float, "floor_us": float,
    "chain": bool, "peers": dict,
}  # fmt: skip
FILE_FIELDS = {"commit": str, "date": str, "device": str, "versions": dict, "rows": list}


@dataclass
class Row:
    """m counts tokens, n outputs, k inputs. chain: timed with dependent launch. A stream row moves k bytes: its format is read or copy."""

    op: str
    format: str
    activation: str
    m: int
    n: int
    k: int
    kernel: str
    us: float
    floor_us: float
    chain: bool = False
    peers: dict[str, float] = field(default_factory=dict)  # µs

    # For the table alone
    moved: int = 0  # bytes
    operations: int = 0
    ratios: dict[str, float] = field(default_factory=dict)  # peer over ours, the median of the rounds

    def as_json(self) -> dict:
        values = {name: getattr(self, name) for name in ROW_FIELDS}
        values["us"], values["floor_us"] = round(self.us, 4), round(self.floor_us, 4)
        values["peers"] = {name: round(us, 4) for name, us in self.peers.items()}
        return values


HEADER = (
    f"{'op':<12} {'format':<13} {'activation':<13} {'m x n x k':>18} {'kernel':<24} {'us':>10} {'TB/s':>6} {'TFLOP/s':>8} {'floor':>6}"
    "  peers (times as long as ours)"
)  # fmt: skip


def line(row: Row) -> str:
    shape = f"{row.m}x{row.n}x{row.k}"
    speed = f"{row.operations / row.us / 1e6:>8.1f}" if row.operations else f"{'':>8}"
    peers = "  ".join(f"{name} {row.ratios[name]:.2f}" for name in row.peers)
    op = f"{row.op} chain" if row.chain else row.op
    if row.op == "matmul" and row.m <= FEW_TOKENS:
        floor = f"{row.us / row.floor_us:>4.2f} x"
    else:
        floor = f"{100 * row.floor_us / row.us:>4.0f} %"
    return (
        f"{op:<12} {row.format:<13} {row.activation:<13} {shape:>18} {row.kernel:<24} {row.us:>10.2f} {row.moved / row.us / 1e6:>6.2f} "
        f"{speed} {floor}  {peers}"
    )


def commit(root: Path) -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def file_name(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def document(rows: list[Row], commit: str, device: str, versions: dict[str, str]) -> dict:
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "commit": commit,
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device,
        "versions": versions,
        "rows": [row.as_json() for row in rows],
    }


def _check_fields(where: str, found: dict, wanted: dict[str, type]) -> None:
    if set(found) != set(wanted):
        raise ValueError(f"{where}: has the fields {sorted(found)}; use {sorted(wanted)}")
    for name, kind in wanted.items():
        allowed = (int, float) if kind is float else kind
        if not isinstance(found[name], allowed) or (kind is not bool and isinstance(found[name], bool)):
            raise ValueError(f"{where}: {name} = {found[name]!r}; use a {kind.__name__}")


def check(content: dict) -> None:
    """Raises ValueError where a document is not of the form that its readers expect."""
    _check_fields("the file", content, FILE_FIELDS)
    for index, row in enumerate(content["rows"]):
        where = f"rows[{index}]"
        _check_fields(where, row, ROW_FIELDS)
        if row["op"] not in OPS:
            raise ValueError(f"{where}: op = {row['op']!r}; use one of {', '.join(OPS)}")
        if not row["us"] > 0 or not row["floor_us"] > 0:
            raise ValueError(f"{where}: us = {row['us']}, floor_us = {row['floor_us']}; use times above 0")
        for name, us in row["peers"].items():
            if not isinstance(us, (int, float)) or not us > 0:
                raise ValueError(f"{where}: peers.{name} = {us!r}; use a time above 0, or leave the peer out")


def write(content: dict, path: Path) -> None:
    """One row per line, so that two runs can be compared with diff."""
    check(content)
    head = json.dumps({name: value for name, value in content.items() if name != "rows"}, indent=2)
    rows = ",\n".join("    " + json.dumps(row) for row in content["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head[:-2]},\n  "rows": [\n{rows}\n  ]\n}}\n')


def read(path: Path) -> dict:
    content = json.loads(path.read_text())
    check(content)
    return content
