"""Our safetensors reader and writer against the PyPI package, in both directions.

The C++ side is reached through a small program; LOWBIT_SAFETENSORS_TOOL says where it is.
"""

import json
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")
safetensors = pytest.importorskip("safetensors")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("LOWBIT_SAFETENSORS_TOOL", ROOT / "build/release/tests/safetensors_tool"))

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built; build it or set LOWBIT_SAFETENSORS_TOOL")

DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "C64": np.complex64,
    "F64": np.float64,
    "I64": np.int64,
    "U64": np.uint64,
}
SHAPES = [(), (0,), (1,), (3, 0, 2), (7,), (5, 3), (2, 3, 4), (1, 1, 1, 1, 31)]


def run_tool(*arguments):
    return subprocess.run([str(TOOL), *map(str, arguments)], capture_output=True, text=True, encoding="utf-8", timeout=60)


def dump(path):
    """The metadata and {name: description} as our reader sees them."""
    result = run_tool("dump", path)
    assert result.returncode == 0, result.stderr
    first, *rest = [json.loads(line) for line in result.stdout.splitlines()]
    return first["metadata"], {line["name"]: line for line in rest}


def copy(source, destination):
    result = run_tool("copy", source, destination)
    assert result.returncode == 0, result.stderr


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def random_array(shape, dtype, seed):
    """Any bytes make a value of these types, except that a bool is 0 or 1."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.random.default_rng(seed).integers(0, 256, count * np.dtype(dtype).itemsize, dtype=np.uint8)
    return ((raw % 2).astype(np.bool_) if dtype is np.bool_ else raw.view(dtype)).reshape(shape)


def package_load(path):
    """{name: (dtype, shape, bytes)}; works for the types that numpy itself lacks."""
    content = safetensors.deserialize(Path(path).read_bytes())
    return {name: (tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"])) for name, tensor in content}


def package_accepts(content):
    try:
        safetensors.deserialize(content)
        return True
    except safetensors.SafetensorError:
        return False


def make_file(header, data=b""):
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header)) + header + data


def tensor(name, dtype, shape, offsets):
    return f'"{name}":{{"dtype":"{dtype}","shape":{json.dumps(shape)},"data_offsets":{json.dumps(offsets)}}}'


def test_the_package_has_no_dtype_that_we_lack():
    """The package lists its dtypes when it refuses one."""
    content = make_file("{" + tensor("w", "NONE", [1], [0, 1]) + "}", b"x")
    with pytest.raises(safetensors.SafetensorError) as refusal:
        safetensors.deserialize(content)
    listed = set(str(refusal.value).split("`")[3::2])
    if "BF16" not in listed:
        pytest.skip(f"safetensors {safetensors.__version__} does not list its dtypes")
    assert listed <= set(DTYPES) | {"F4", "F6_E2M3", "F6_E3M2"}, "the package knows more types; add them to safetensors_dtype.cpp"


def package_can_write(name):
    try:
        safetensors_numpy.save({"w": np.zeros(1, DTYPES[name])})
        return True
    except (safetensors.SafetensorError, KeyError):
        return False


@pytest.mark.parametrize("name", DTYPES)
def test_we_read_what_the_package_wrote(name, tmp_path):
    if not package_can_write(name):
        pytest.skip(f"safetensors {safetensors.__version__} cannot write {name}")
    arrays = {f"shape {shape}": random_array(shape, DTYPES[name], seed) for seed, shape in enumerate(SHAPES)}
    path = tmp_path / "package.safetensors"
    safetensors_numpy.save_file(arrays, path, metadata={"format": "np"})
    metadata, tensors = dump(path)
    assert metadata == {"format": "np"}
    assert set(tensors) == set(arrays)
    for key, array in arrays.items():
        assert tensors[key]["dtype"] == name
        assert tuple(tensors[key]["shape"]) == array.shape
        assert tensors[key]["fnv1a"] == fnv1a(array.tobytes())


def mixed_arrays():
    names = [name for name in DTYPES if package_can_write(name)]
    return {f"layer.{i}.{name}": random_array(SHAPES[(3 * i + 4) % len(SHAPES)], DTYPES[name], i) for i, name in enumerate(names)}


def test_our_copy_of_a_package_file_is_the_same_to_the_byte(tmp_path):
    source, destination = tmp_path / "package.safetensors", tmp_path / "ours.safetensors"
    arrays = mixed_arrays() | {'odd "name"\n\t\x01/é€😀\x7f': np.arange(3000, dtype=np.float32)}
    safetensors_numpy.save_file(arrays, source, metadata={"key\\": "välue"})
    copy(source, destination)
    assert destination.read_bytes() == source.read_bytes()


def test_the_package_reads_what_we_wrote(tmp_path):
    # By hand, with narrow types first, two metadata keys and white space: our writer has to rearrange all of it.
    data = bytes(range(97))
    header = (
        '{ "__metadata__": {"b": "2", "a": "\\u00e9\\ud83d\\ude00"},\n '
        + ", ".join(
            [
                tensor("bytes", "U8", [3], [0, 3]),
                tensor("nibbles", "F4", [2, 3], [3, 6]),
                tensor("sixes", "F6_E2M3", [4], [6, 9]),
                tensor("wide", "F64", [2, 5], [9, 89]),
                tensor("none", "BF16", [0, 4], [89, 89]),
                tensor("scalar", "I64", [], [89, 97]),
            ]
        )
        + "}"
    )
    source, destination = tmp_path / "hand.safetensors", tmp_path / "ours.safetensors"
    source.write_bytes(make_file(header, data))
    copy(source, destination)
    if not package_accepts(source.read_bytes()):
        pytest.skip(f"safetensors {safetensors.__version__} has no types narrower than a byte")
    assert package_load(destination) == package_load(source)
    with safetensors.safe_open(destination, framework="np") as file:
        assert file.metadata() == {"a": "é😀", "b": "2"}
        assert set(file.keys()) == {"bytes", "nibbles", "sixes", "wide", "none", "scalar"}
        assert file.get_tensor("wide").tobytes() == data[9:89]
        assert file.get_tensor("scalar").shape == ()
    content = destination.read_bytes()
    assert struct.unpack("<Q", content[:8])[0] % 8 == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["hand.safetensors", "ours.safetensors"]


def test_a_copy_without_tensors_loads(tmp_path):
    source, destination = tmp_path / "hand.safetensors", tmp_path / "ours.safetensors"
    source.write_bytes(make_file('{"__metadata__":{}}'))
    copy(source, destination)
    assert package_load(destination) == {}


# What neither side may accept, with what our text has to name.
MALFORMED = {
    "empty": (b"", "0 bytes"),
    "short": (b"\x02\0\0\0", "4 bytes"),
    "no header": (make_file(""), "{"),
    "header past the end": (struct.pack("<Q", 3) + b"{}", "header length 3"),
    "header over the limit": (struct.pack("<Q", 100_000_001) + b"{}", "100000001"),
    "header length of all ones": (b"\xff" * 8 + b"{}", str(2**64 - 1)),
    "not JSON": (make_file("{hello}"), "a name in quotes"),
    "an array": (make_file("[]"), "{"),
    "open": (make_file("{"), "the end"),
    "trailing comma": (make_file('{"__metadata__":{},}'), "a name in quotes"),
    "trailing byte": (make_file("{}x"), "only spaces"),
    "trailing zero": (make_file("{}\0"), "only spaces"),
    "invalid UTF-8": (make_file(b'{"__metadata__":{"k":"\xff"}}'), "UTF-8"),
    "overlong UTF-8": (make_file(b'{"__metadata__":{"k":"\xc0\x80"}}'), "UTF-8"),
    "lone surrogate": (make_file('{"__metadata__":{"k":"\\ud800"}}'), "surrogate"),
    "bad escape": (make_file('{"__metadata__":{"k":"\\x"}}'), "escape"),
    "raw control character": (make_file('{"__metadata__":{"k":"\n"}}'), "control character"),
    "metadata value is a number": (make_file('{"__metadata__":{"k":1}}'), '"k"'),
    "metadata is a list": (make_file('{"__metadata__":["k"]}'), "__metadata__"),
    "unknown dtype": (make_file("{" + tensor("w", "F7", [1], [0, 1]) + "}", b"x"), "F7"),
    "too few bytes": (make_file("{" + tensor("w", "F32", [2], [0, 4]) + "}", b"xxxx"), "takes 8"),
    "too many bytes": (make_file("{" + tensor("w", "U8", [2], [0, 4]) + "}", b"xxxx"), "takes 2"),
    "past the end": (make_file("{" + tensor("w", "U8", [4], [0, 4]) + "}", b"xxx"), "has 3 bytes"),
    "backwards": (make_file("{" + tensor("w", "U8", [1], [2, 1]) + "}", b"xx"), "backwards"),
    "half a byte": (make_file("{" + tensor("w", "F4", [3], [0, 1]) + "}", b"x"), '"w"'),
    "shape overflows": (make_file("{" + tensor("w", "F32", [2**32, 2**32], [0, 0]) + "}"), "64 bits"),
    "size over 64 bits": (make_file("{" + tensor("w", "U8", [2**64], [0, 0]) + "}"), str(2**64)),
    "negative size": (make_file("{" + tensor("w", "U8", [-1], [0, 0]) + "}"), "-1"),
    "fraction": (make_file("{" + tensor("w", "U8", [1.5], [0, 1]) + "}", b"x"), "1.5"),
    "whole fraction": (make_file("{" + tensor("w", "U8", [1.0], [0, 1]) + "}", b"x"), "1.0"),
    "one offset": (make_file("{" + tensor("w", "U8", [0], [0]) + "}"), "data_offsets"),
    "three offsets": (make_file("{" + tensor("w", "U8", [1], [0, 1, 1]) + "}", b"x"), "data_offsets"),
    "no shape": (make_file('{"w":{"dtype":"U8","data_offsets":[0,0]}}'), "shape is missing"),
    "dtype twice": (make_file('{"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "duplicate"),
    "gap at the start": (make_file("{" + tensor("w", "U8", [1], [1, 2]) + "}", b"xx"), "a gap"),
    "gap": (make_file("{" + tensor("a", "U8", [1], [0, 1]) + "," + tensor("b", "U8", [1], [2, 3]) + "}", b"xxx"), "a gap"),
    "overlap": (make_file("{" + tensor("a", "U8", [3], [0, 3]) + "," + tensor("b", "U8", [2], [2, 4]) + "}", b"xxxx"), "an overlap"),
    "the same bytes": (make_file("{" + tensor("a", "U8", [2], [0, 2]) + "," + tensor("b", "U8", [2], [0, 2]) + "}", b"xx"), "an overlap"),
    "bytes at the end": (make_file("{" + tensor("w", "U8", [1], [0, 1]) + "}", b"xyz"), "2 bytes"),
    "bytes and no tensor": (make_file("{}", b"x"), "no tensor"),
}


@pytest.mark.parametrize("title", MALFORMED)
def test_both_refuse_malformed_files(title, tmp_path):
    content, named = MALFORMED[title]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    assert not package_accepts(content)
    result = run_tool("dump", path)
    assert result.returncode == 1
    assert str(path) in result.stderr
    assert named in result.stderr


# The package lets these through; two readers could understand them in two ways, so ours does not.
AMBIGUOUS = {
    "name twice": make_file("{" + tensor("w", "U8", [0], [0, 0]) + "," + tensor("w", "U8", [0], [0, 0]) + "}"),
    "metadata key twice": make_file('{"__metadata__":{"k":"1","k":"2"}}'),
    "unknown key": make_file('{"w":{"dtype":"U8","x":1,"shape":[0],"data_offsets":[0,0]}}'),
    "tensor as a list": make_file('{"w":["U8",[0],[0,0]]}'),
    "leading space": make_file(" {}"),
    "trailing newline": make_file("{}\n"),
}


@pytest.mark.parametrize("title", AMBIGUOUS)
def test_we_refuse_ambiguous_files(title, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(AMBIGUOUS[title])
    result = run_tool("dump", path)
    assert result.returncode == 1
    assert str(path) in result.stderr


def test_what_we_accept_the_package_accepts(tmp_path):
    """Random damage to a good file: wherever ours says yes, the package must say yes too."""
    header = '{"__metadata__":{"k":"v"},' + tensor("a", "F16", [2, 2], [0, 8]) + "," + tensor("b", "U8", [3], [8, 11]) + "}  "
    good = make_file(header, b"12345678abc")
    generator = random.Random(7)
    path = tmp_path / "damaged.safetensors"
    accepted = 0
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(generator.randint(1, 2)):
            position = generator.randrange(8, len(damaged))
            damaged[position] = generator.choice(b'0123456789,:"{}[] aUF\\\x00\xff')
        path.write_bytes(damaged)
        if run_tool("dump", path).returncode == 0:
            accepted += 1
            assert package_accepts(bytes(damaged)), bytes(damaged)
    assert 0 < accepted < 300
