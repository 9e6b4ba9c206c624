#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into corpus/ beside this file: small files, so that a mutation hits something that matters.

The output is the same on every run; after a change here, run it and commit what it wrote.
"""

import json
import struct
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus"
LARGEST_SEED = 2048

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip


def with_length(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def safetensors(tensors: list[tuple[str, str, list[int]]], metadata: dict[str, str] | None = None) -> bytes:
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, dtype, shape in tensors:
        bits = BITS[dtype]
        for size in shape:
            bits *= size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + bits // 8]}
        offset += bits // 8
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return with_length(text + b" " * (-len(text) % 8), bytes(i % 251 for i in range(offset)))


def quantized(name: str, fmt: str, shape: list[int]) -> dict[str, str]:
    return {"lowbit": "1", "lowbit." + name: json.dumps({"format": fmt, "shape": shape, "dtype": "BF16"}, separators=(",", ":"))}


def header_only(file: bytes) -> bytes:
    """What safetensors_fuzz reads in its second way: the number of data bytes, then the header."""
    (length,) = struct.unpack("<Q", file[:8])
    return bytes([len(file) - 8 - length]) + file[8 : 8 + length]


def safetensors_seeds() -> dict[str, bytes]:
    files = safetensors_files()
    return files | {f"header_{name}": header_only(content) for name, content in files.items()}


def safetensors_files() -> dict[str, bytes]:
    return {
        "no_tensors": safetensors([]),
        "one_tensor": safetensors([("w", "F32", [2, 3])]),
        "scalar_and_empty": safetensors([("scalar", "F64", []), ("empty", "F16", [0, 7]), ("last", "U8", [3])]),
        "every_dtype": safetensors([(dtype, dtype, [4]) for dtype in BITS], {"format": "pt"}),
        "metadata": safetensors([("w", "U8", [1])], {"format": "pt", 'odd "key"\n\x01': "é€😀\\/"}),
        "escapes": with_length(b'{"__metadata__":{"\\u0041\\u00e9\\ud83d\\ude00":"\\"\\\\\\/\\b\\f\\n\\r\\t"}}'),
        "whitespace": with_length(b'{ "w" :\t{ "shape" : [ 1 , 2 ] ,\r\n"dtype" : "U8" , "data_offsets" : [ 0 , 2 ] } }  ', b"ab"),
        "quantized_int4": safetensors(
            [("w.scales", "F16", [2, 1]), ("w.codes", "U8", [2, 4])],
            quantized("w", "int4:g8", [2, 8]),
        ),
        "quantized_uint4_asym": safetensors(
            [("w.scales", "F16", [2, 2]), ("w.codes", "U8", [2, 4]), ("w.zero_points", "U8", [2, 2])],
            quantized("w", "uint4:g4:asym", [2, 8]),
        ),
        "quantized_nvfp4": safetensors(
            [("w.tensor_scale", "F32", [1]), ("w.codes", "U8", [2, 8]), ("w.scales", "F8_E4M3", [2, 1])],
            quantized("w", "nvfp4", [1, 2, 16]),
        ),
        "refused_overlap": with_length(
            b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', b"abc"
        ),
        "refused_overflow": with_length(b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,18446744073709551615]}}'),
        "refused_surrogate": with_length(b'{"__metadata__":{"k":"\\ud800"}}'),
    }


def main() -> None:
    for target, seeds in {"safetensors": safetensors_seeds()}.items():
        folder = FOLDER / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            assert len(content) <= LARGEST_SEED, f"{target}/{name}: {len(content)} bytes; a seed has at most {LARGEST_SEED}"
            (folder / name).write_bytes(content)
        print(f"{folder}: {len(seeds)} seeds")


if __name__ == "__main__":
    main()
