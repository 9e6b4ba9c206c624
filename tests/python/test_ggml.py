"""The GGML block types, bit for bit against the Python package of llama.cpp."""

import zlib

import numpy as np
import pytest

import lowbit_c

try:
    import gguf
    from gguf import quants
except ImportError:
    gguf = None
needs_gguf = pytest.mark.skipif(gguf is None, reason="the package gguf, which these blocks are compared with, is not installed")

# name: values and bytes of a block
BLOCKS = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36), "iq4_nl": (32, 18),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
}  # fmt: skip
# gguf has no quantizer for the others, and nothing at all for q8_1.
GGUF_QUANTIZES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
GGUF_DEQUANTIZES = [name for name in BLOCKS if name != "q8_1"]
BLOCKS_PER_ROW = 4


def gguf_type(name):
    return gguf.GGMLQuantizationType[name.upper()]


def normal(values, seed, count=2000):
    return np.random.default_rng(seed).standard_normal((count, values)).astype(np.float32)


def with_outliers(values):
    x = normal(values, 2)
    x[np.random.default_rng(3).random(x.shape) < 0.01] *= 100
    return x


def with_empty_stretches(values):
    """Runs of 16 zeros: whole sub-blocks of the K types have nothing in them."""
    runs = normal(values, 4).reshape(2000, -1, 16)
    runs[np.random.default_rng(5).random(runs.shape[:2]) < 0.4] = 0
    return runs.reshape(2000, values)


# Every case is a matrix of one block per row; together more than 2000 blocks for each type.
CASES = {
    "normal": lambda values: normal(values, 1),
    "outliers": with_outliers,
    "empty_stretches": with_empty_stretches,
    "positive": lambda values: np.abs(normal(values, 6)),
    "negative": lambda values: -np.abs(normal(values, 7)),
    "small_integers": lambda values: np.round(normal(values, 8) * 4),
    "zeros": lambda values: np.zeros((64, values), np.float32),
    "constant": lambda values: np.repeat(normal(1, 9), values, axis=1),
    "tiny": lambda values: normal(values, 10) * np.float32(1e-8),
    "below_fp16": lambda values: normal(values, 11) * np.float32(1e-20),
    "large": lambda values: normal(values, 12) * np.float32(1e4),
    "scale_overflows_fp16": lambda values: normal(values, 13) * np.float32(1e8),
    "huge": lambda values: normal(values, 14) * np.float32(1e30),
}


def as_matrix(blocks):
    """Several blocks to a row, so that a row is more than a block."""
    return np.ascontiguousarray(blocks.reshape(len(blocks) // BLOCKS_PER_ROW, -1))


def our_blocks(x, name):
    return lowbit_c.quantize(as_matrix(x), name)["codes"].reshape(len(x), BLOCKS[name][1])


def our_values(blocks, name):
    planes = lowbit_c.empty_planes(name, len(blocks) // BLOCKS_PER_ROW, BLOCKS_PER_ROW * BLOCKS[name][0])
    planes["codes"][:] = as_matrix(blocks)
    return lowbit_c.dequantize(planes).reshape(len(blocks), BLOCKS[name][0])


def assert_same_blocks(ours, theirs):
    different = np.flatnonzero((ours != theirs).any(axis=1))
    assert different.size == 0, f"{different.size} of {len(ours)} blocks differ, first {different[0]}:\n" \
                                f"ours   {ours[different[0]]}\ntheirs {theirs[different[0]]}"  # fmt: skip


def assert_same_floats(ours, theirs):
    """To the bit, the sign of zero included; any NaN is as good as another."""
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} values differ, first ours {ours[~same][0]!r}, theirs {theirs[~same][0]!r}"


@pytest.mark.parametrize("name", BLOCKS)
@needs_gguf
def test_sizes_are_those_of_gguf(name):
    assert gguf.GGML_QUANT_SIZES[gguf_type(name)] == BLOCKS[name] or name == "q8_1"
    assert lowbit_c.measure(name, 3, 2 * BLOCKS[name][0]).row_bytes == 2 * BLOCKS[name][1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # gguf's numpy warns where a scale overflows fp16
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", GGUF_QUANTIZES)
@needs_gguf
def test_quantize_as_gguf(name, case):
    x = CASES[case](BLOCKS[name][0])
    assert_same_blocks(our_blocks(x, name), quants.quantize(x, gguf_type(name)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", GGUF_DEQUANTIZES)
@needs_gguf
def test_dequantize_as_gguf(name, case):
    blocks = our_blocks(CASES[case](BLOCKS[name][0]), name)
    assert_same_floats(our_values(blocks, name), quants.dequantize(blocks, gguf_type(name)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", GGUF_DEQUANTIZES)
@needs_gguf
def test_dequantize_any_bytes_as_gguf(name):
    """Not only what our quantizer writes: every bit pattern, scales that are infinite or not numbers among them."""
    blocks = np.random.default_rng(20).integers(0, 256, (4000, BLOCKS[name][1])).astype(np.uint8)
    assert_same_floats(our_values(blocks, name), quants.dequantize(blocks, gguf_type(name)))


def q8_1_blocks(x):
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    product = x * inverse
    magnitude = np.abs(product)
    codes = np.sign(product) * (np.floor(magnitude) + (magnitude - np.floor(magnitude) >= 0.5))  # half away from zero
    total = scale * codes.sum(axis=1, keepdims=True, dtype=np.float32)
    parts = scale.astype(np.float16), total.astype(np.float16), codes.astype(np.int8)
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
def test_q8_1_as_its_formula(case):
    x = CASES[case](32)
    blocks = our_blocks(x, "q8_1")
    assert_same_blocks(blocks, q8_1_blocks(x))
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    assert_same_floats(our_values(blocks, "q8_1"), blocks[:, 4:].view(np.int8).astype(np.float32) * scale)


def fixed_values(values):
    """Numbers that are the same in every version of numpy on every machine: sums of four 16-bit integers, some of them made large."""
    state = np.random.RandomState(12345)
    x = state.randint(-32768, 32768, (2000, values, 4), dtype=np.int64).sum(axis=2).astype(np.float32) * np.float32(2.0**-15)
    x[state.randint(0, 100, x.shape, dtype=np.int64) == 0] *= 16
    return x


# gguf cannot quantize to these. The checksums are of blocks made by llama.cpp's own C code from the same values (that of llama-cpp-python
# 0.3.36, compiled so that a*b+c rounds twice).
CHECKSUMS = {
    "iq4_nl": 0x83A2C27F, "q2_k": 0x5F47DB41, "q3_k": 0x5134E1D1, "q4_k": 0xD4B6B2A7, "q5_k": 0xFC078E6E, "q6_k": 0xBBC7B959,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKSUMS)
def test_quantize_as_llama_cpp(name):
    blocks = our_blocks(fixed_values(BLOCKS[name][0]), name)
    assert f"{zlib.crc32(blocks.tobytes()):#010x}" == f"{CHECKSUMS[name]:#010x}"


# A bit more loses less, and so does a search that knows the values over a formula of as many bits that does not.
BETTER = [
    ("q3_k", "q2_k"), ("q4_k", "q3_k"), ("q5_k", "q4_k"), ("q6_k", "q5_k"), ("q8_0", "q6_k"), ("q4_k", "q4_0"), ("q5_k", "q5_0"),
    ("iq4_nl", "q4_0"),
]  # fmt: skip


@pytest.mark.parametrize("better, worse", BETTER)
def test_search_pays(better, worse):
    x = normal(256, 21)
    better_error, worse_error = (
        np.linalg.norm(our_values(our_blocks(x.reshape(-1, BLOCKS[name][0]), name), name).ravel() - x.ravel()) for name in (better, worse)
    )
    assert better_error < worse_error


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_not_finite_stays_in_its_block(name):
    values = BLOCKS[name][0]
    x = normal(values, 22)
    spoiled = x.copy()
    spoiled[::4, 5] = np.tile(np.array([np.nan, np.inf, -np.inf, 3e38], np.float32), 125)
    ours = our_blocks(spoiled, name)
    untouched = np.arange(len(x)) % 4 != 0
    assert_same_blocks(ours[untouched], our_blocks(x, name)[untouched])
