"""fp8, fp4, fp16, bf16 and e8m0 against ml_dtypes and numpy: every code decoded, and encoding on and around every tie."""

import numpy as np
import pytest

import lowbit_c

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the package ml_dtypes, which these numbers are compared with, is not installed")

# name: the type of ml_dtypes, its bits, our largest number, our code for NaN
SMALL = {
    "fp8_e4m3": (ml_dtypes.float8_e4m3fn, 8, 448.0, 0x7F),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, 8, 57344.0, 0x7F),
    "fp4_e2m1": (getattr(ml_dtypes, "float4_e2m1fn", None), 4, 6.0, 0x0),
}
WIDE = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def small_type(name):
    if SMALL[name][0] is None:
        pytest.skip("this ml_dtypes has no 4-bit floats (0.5 and later have)")
    return SMALL[name][0]


def pack_nibbles(codes):
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_nibbles(codes):
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)


def all_codes(bits):
    return np.arange(2**bits, dtype=np.uint8 if bits <= 8 else np.uint16)


def decode_with_scale_one(name, codes):
    planes = lowbit_c.empty_planes(f"{name}:tensor", 1, codes.size)
    planes["codes"][:] = pack_nibbles(codes) if SMALL[name][1] == 4 else codes
    planes["scales"][:] = 1
    return lowbit_c.dequantize(planes).ravel()


def encode_with_scale_one(name, x):
    codes = lowbit_c.quantize(x.reshape(1, -1), f"{name}:tensor", scales=1.0)["codes"].ravel()
    return unpack_nibbles(codes) if SMALL[name][1] == 4 else codes


def assert_same_floats(ours, theirs):
    """To the bit, the sign of zero included; any NaN is as good as another."""
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))
    assert same.all(), f"codes {np.flatnonzero(~same)[:8]}: ours {ours[~same][:8]}, theirs {theirs[~same][:8]}"


def assert_same_codes(x, ours, theirs):
    different = np.flatnonzero(ours != theirs)[:8]
    assert different.size == 0, f"x {x[different]}: ours {ours[different]}, theirs {theirs[different]}"


def around(values):
    """The values and the fp32 numbers next to them on both sides."""
    values = values.astype(np.float32)
    return np.concatenate([values, np.nextafter(values, np.float32(np.inf)), np.nextafter(values, np.float32(-np.inf))])


def hard_numbers(decoded):
    """What rounding gets wrong first: all numbers of the type, all midpoints of neighbours, and fp32 of every magnitude."""
    numbers = np.unique(np.abs(decoded[np.isfinite(decoded)].astype(np.float64)))
    midpoints = (numbers[1:] + numbers[:-1]) / 2  # exact in fp32 for types of up to 16 bits, but for subnormal ones of bf16
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2  # where the next number would begin
    with np.errstate(over="ignore"):
        edges = around(np.concatenate([numbers, midpoints, [beyond, 2 * beyond]]))
    random = np.random.default_rng(1)
    near = (random.standard_normal(100_000) * numbers[-1] / 4).astype(np.float32)
    any_bits = random.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = np.array([0.0, np.inf, np.nan, 1e-45, 3.4028235e38, 1e-38], np.float32)
    positive = np.concatenate([edges, near, any_bits, special])
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("name", SMALL)
def test_decode_every_small_code(name):
    dtype, codes = small_type(name), all_codes(SMALL[name][1])
    assert_same_floats(decode_with_scale_one(name, codes), codes.view(dtype).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SMALL)
def test_encode_small(name):
    """Ties to even as ml_dtypes has it; beyond the largest number, infinity included, ours stops there."""
    dtype, bits, largest, not_a_number = small_type(name), *SMALL[name][1:]
    x = hard_numbers(all_codes(bits).view(dtype).astype(np.float32))
    expected = np.clip(x, -largest, largest).astype(dtype).view(np.uint8)
    expected[np.isnan(x)] = not_a_number
    assert_same_codes(x, encode_with_scale_one(name, x), expected)


@pytest.mark.parametrize("name", WIDE)
def test_decode_every_wide_code(name):
    codes = all_codes(16).reshape(256, 256)
    planes = lowbit_c.empty_planes(name, 256, 256)
    planes["codes"][:] = codes.view(np.uint8)
    assert_same_floats(lowbit_c.dequantize(planes), codes.view(WIDE[name]).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", WIDE)
def test_encode_wide(name):
    """As IEEE 754: to infinity beyond the largest number."""
    with np.errstate(all="ignore"):
        x = hard_numbers(all_codes(16).view(WIDE[name]).astype(np.float32))
        expected = x.astype(WIDE[name])
    ours = lowbit_c.quantize(x.reshape(1, -1), name)["codes"].view(np.uint16).ravel()
    numbers = ~np.isnan(x)
    assert_same_codes(x[numbers], ours[numbers], expected.view(np.uint16)[numbers])
    assert np.isnan(ours[~numbers].view(WIDE[name]).astype(np.float32)).all()


@pytest.mark.parametrize("name", WIDE)
def test_store_wide(name):
    """The same rounding where fp16 and bf16 are the type of the output."""
    x = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    planes = lowbit_c.empty_planes("fp32", 64, 64)
    planes["codes"][:] = x.view(np.uint8)
    ours = lowbit_c.dequantize(planes, WIDE[name])
    assert_same_codes(x.ravel(), ours.view(np.uint16).ravel(), x.astype(WIDE[name]).view(np.uint16).ravel())


def test_decode_every_e8m0_scale():
    """Row r of mxfp4 has the scale code r over 32 values 1.0: 2^(r - 127), and NaN for 255."""
    planes = lowbit_c.empty_planes("mxfp4", 256, 32)
    one = 2
    planes["codes"][:] = one | one << 4
    planes["scales"][:] = np.arange(256).reshape(256, 1)
    expected = np.append(np.ldexp(np.float64(1), np.arange(255) - 127), np.nan).astype(np.float32)
    assert_same_floats(lowbit_c.dequantize(planes), np.repeat(expected, 32).reshape(256, 32))
    if hasattr(ml_dtypes, "float8_e8m0fnu"):
        assert_same_floats(all_codes(8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32), expected)
