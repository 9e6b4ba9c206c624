"""lowbit.matmul, on every device: over formats, types and shapes, against decoded weights in float64, and exact integers."""

import re

import pytest

from torch_cases import FLOATS, FORMATS, GGML, assert_product, lowbit, needs_cuda, normal, on_devices, same_bits, torch

functional = torch.nn.functional
# tokens before the last dimension, outputs, inputs
SHAPES = [((1,), 64, 256), ((2, 3), 67, 512), ((), 16, 256), ((17,), 130, 1024)]
RAGGED = [((3,), 7, 33), ((2, 2), 17, 200), ((5,), 1, 127), ((1,), 33, 1)]
ACTIVATIONS = {
    None: lambda y: y,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    "silu": functional.silu,
}


def rounding_of(device, dtype):
    """Tensor cores multiply 16-bit numbers: there a weight may be decoded to the type of x."""
    return {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 0.0) if device == "cuda" else 0.0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@on_devices
def test_weights_in_every_format(device, format, dtype):
    for lead, n, k in SHAPES + ([] if format in GGML else RAGGED):
        x = normal(*lead, k, dtype=dtype, device=device)
        w = lowbit.quantize(normal(n, k, device=device), format)
        y = lowbit.matmul(x, w)
        assert y.shape == (*lead, n) and y.dtype == dtype and y.device == x.device
        decoded = w.dequantize(torch.float32)
        assert_product(y.reshape(-1, n), x.reshape(-1, k), decoded, rounding_of(device, dtype))
        packed = lowbit.matmul(x, w.pack())
        assert_product(packed.reshape(-1, n), x.reshape(-1, k), decoded, rounding_of(device, dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_plain_weights(device, dtype):
    for lead, n, k in SHAPES + RAGGED:
        x, w = normal(*lead, k, dtype=dtype, device=device), normal(n, k, dtype=dtype, device=device)
        y = lowbit.matmul(x, w)
        assert y.shape == (*lead, n) and y.dtype == dtype
        assert_product(y.reshape(-1, n), x.reshape(-1, k), w)


FAR_FROM_ONE = [
    ("int4:g128:scale_bf16", 2.0**-60), ("int4:g128:scale_bf16", 2.0**24), ("int4:row", 2.0**-60), ("int4:row", 2.0**24),
    ("uint4:g128:asym:scale_bf16", 2.0**-60), ("mxfp4", 2.0**-60), ("mxfp4", 2.0**24), ("nvfp4", 2.0**-40), ("nvfp4", 2.0**20),
    ("int8:row", 2.0**-60), ("int8:row", 2.0**24), ("q4_0", 2.0**-6), ("q4_0", 2.0**12), ("q4_k", 2.0**-6), ("q4_k", 2.0**12), ("q6_k", 2.0**10),
]  # fmt: skip


@pytest.mark.parametrize("format, magnitude", FAR_FROM_ONE)
@on_devices
def test_scales_far_from_one(device, format, magnitude):
    """Kernels may keep weights divided by a power of two on the way (src/cuda/formats/small_numbers.cuh)."""
    for tokens in (3, 16, 40, 200):
        x = normal(tokens, 512, dtype=torch.bfloat16, device=device)
        w = lowbit.quantize(normal(208, 512, device=device) * magnitude, format)
        for weight in (w, w.pack()):
            y = lowbit.matmul(x, weight, out_dtype=torch.float32)
            assert_product(y, x, w.dequantize(torch.float32), 2 * rounding_of(device, torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@on_devices
def test_scale_that_is_not_a_number(device, dtype):
    w = lowbit.quantize(normal(32, 256, device=device), "mxfp4")
    scales = w.scales.view(torch.uint8).clone()
    scales.view(32, 8)[5, 3] = 255
    w = lowbit.QTensor(w.codes, scales.view(w.scales.dtype), format=w.format, shape=w.shape)
    for tokens in (1, 16, 40):
        for weight in (w, w.pack()):
            y = lowbit.matmul(normal(tokens, 256, dtype=dtype, device=device), weight)
            assert y[:, 5].isnan().all() and y.isnan().sum() == tokens


PAIRS = [
    ("int8:row", "int8:row"), ("int8:tensor", "int8:row"), ("uint8:row:asym", "int8:row"), ("int4:row", "int4:row"),
    ("int8:row", "int4:g128"), ("fp8_e4m3:row", "fp8_e4m3:row"), ("fp8_e4m3:g128", "fp8_e4m3:block128"), ("q8_1", "q4_0"), ("q8_1", "q8_0"),
    ("int1:row", "int1:row"), ("int8:row", "nf4:g64"), ("mxfp8", "mxfp4"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("x_format, w_format", PAIRS)
@on_devices
def test_both_sides_quantized(device, x_format, w_format, dtype):
    for lead, n, k in SHAPES:
        x, w = normal(*lead, k, dtype=dtype, device=device), lowbit.quantize(normal(n, k, device=device), w_format)
        q = lowbit.quantize(x, x_format)
        y = lowbit.matmul(q, w, out_dtype=torch.float32)
        assert y.shape == (*lead, n)
        rounding = rounding_of(device, torch.bfloat16)
        assert_product(y.reshape(-1, n), q.dequantize(torch.float32).reshape(-1, k), w.dequantize(torch.float32), rounding)
        # Quantized on the way: the same codes, so the same bits.
        assert same_bits(lowbit.matmul(x, w, x_format=x_format), lowbit.matmul(q, w))
        assert lowbit.matmul(q, w).dtype == dtype


@pytest.mark.parametrize("x_format", ["q8_1", "q8_0"])
@pytest.mark.parametrize("w_format", ["q4_0", "q8_0", "q4_k", "int4:g32"])
@on_devices
def test_few_tokens_quantized_on_the_way(device, w_format, x_format):
    """With a packed weight a kernel may round tokens by itself: to the same values, kept in fp16, each token for itself."""
    for tokens, n, k in ((1, 96, 512), (5, 208, 768), (16, 33, 256)):
        w = lowbit.quantize(normal(n, k, device=device), w_format)
        packed, numbers = w.pack(), w.dequantize(torch.float32)
        bare = normal(tokens, k, device=device)
        bare[0, :32] = 0
        gaps = torch.empty(tokens, 2 * k, device=device)[:, ::2].copy_(bare)
        for x in (bare, bare.to(torch.bfloat16), bare.to(torch.float16), bare.t().contiguous().t(), gaps, bare * 256):
            y = lowbit.matmul(x, packed, x_format=x_format, out_dtype=torch.float32)
            rounded = lowbit.quantize(x.contiguous(), x_format).dequantize(torch.float32)
            assert_product(y, rounded, numbers, 2 * rounding_of(device, torch.float16))
            if device == "cuda" and torch.cuda.get_device_capability()[0] == 9:  # kernels for few tokens promise this on Hopper
                alone = lowbit.matmul(x[-1:], packed, x_format=x_format, out_dtype=torch.float32)
                assert same_bits(alone, y[-1:])


@pytest.mark.parametrize("x_format, w_format", [pair for pair in PAIRS if "int" in pair[0] and "int" in pair[1] and ":g" not in pair[1]])
@on_devices
def test_integer_products_are_exact(device, x_format, w_format):
    for lead, n, k in SHAPES + RAGGED:
        x = lowbit.quantize(normal(*lead, k, device=device), x_format)
        w = lowbit.quantize(normal(n, k, device=device), w_format)

        def codes(q):
            """What stands for the numbers before scales: all scales 1, so that decoding gives codes less zero points."""
            plain = lowbit.QTensor(q.codes, torch.ones_like(q.scales), q.zeros, format=q.format, shape=q.shape)
            return plain.dequantize(torch.float32).cpu().long()

        y = lowbit.matmul(x, w, out_dtype=torch.int32)
        assert torch.equal(y.cpu().long(), codes(x) @ codes(w).t())


@pytest.mark.parametrize("k", [65536, 65552])
@on_devices
def test_largest_sums_of_rows(device, k):
    """Zero points of tokens are taken off by the sums of the weight's rows; kernels keep these in few bytes where they fit."""
    tokens = torch.tensor([[255, 0], [0, 255], [255, 255], [7, 200]] * 10)  # code, zero point
    rows = torch.tensor([127, -128, 1, -1, 0, 77] * 12)
    like_x = lowbit.quantize(torch.rand(40, k, device=device), "uint8:row:asym")
    like_w = lowbit.quantize(torch.rand(72, k, device=device), "int8:row")
    x = lowbit.QTensor(
        tokens[:, :1].expand(40, k).contiguous().to(device, torch.uint8), torch.ones_like(like_x.scales),
        tokens[:, 1:].to(like_x.zeros).reshape(like_x.zeros.shape), format=like_x.format, shape=like_x.shape,
    )  # fmt: skip
    w = lowbit.QTensor(
        rows[:, None].expand(72, k).contiguous().to(device, torch.int8), torch.ones_like(like_w.scales), format=like_w.format, shape=like_w.shape
    )
    exact = (tokens[:, :1] - tokens[:, 1:]) * rows * k
    for weight in (w, w.pack()):
        assert torch.equal(lowbit.matmul(x, weight, out_dtype=torch.float32).cpu(), exact.float())
        assert torch.equal(lowbit.matmul(x, weight, out_dtype=torch.bfloat16).cpu(), exact.float().bfloat16())


@on_devices
def test_int8_tensors_are_operands(device):
    random = torch.Generator().manual_seed(1)
    for m, n, k in [(1, 1, 1), (3, 5, 7), (16, 16, 64), (33, 65, 129), (5, 0, 3), (0, 4, 3), (4, 3, 0)]:
        a = torch.randint(-128, 128, (m, k), dtype=torch.int8, generator=random).to(device)
        b = torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=random).to(device)
        exact = a.cpu().long() @ b.cpu().long().t()
        assert torch.equal(lowbit.matmul(a, b).cpu().long(), exact)
        assert torch.equal(lowbit.matmul(a, b.t().contiguous().t()).cpu().long(), exact)
        assert_product(lowbit.matmul(a, b, out_dtype=torch.float32), a, b)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@on_devices
def test_epilogue(device, activation):
    for dtype in FLOATS:
        x, w = normal(3, 5, 256, device=device), lowbit.quantize(normal(24, 256, device=device), "int8:row")
        bias = normal(24, dtype=dtype, device=device)
        row_scale, column_scale = normal(15, device=device), normal(24, device=device, seed=1)
        y = lowbit.matmul(
            x, w, bias, activation, dtype, scale=0.1, row_scale=row_scale, column_scale=column_scale
        )
        exact = x.double() @ w.dequantize(torch.float32).double().t() * 0.1
        exact = exact * row_scale.double().reshape(3, 5, 1) * column_scale.double() + bias.double()
        wanted = ACTIVATIONS[activation](exact)
        assert y.shape == (3, 5, 24) and y.dtype == dtype
        assert torch.allclose(y.double(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-4)


@pytest.mark.parametrize("format", ["fp16", "int4:g128", "int8:row", "fp8_e4m3:row", "q4_0"])
@on_devices
def test_gate(device, format):
    # Few and many tokens; halves of whole tiles, and others.
    for tokens, outputs in ((1, 48), (5, 48), (3, 21), (40, 64)):
        for dtype in FLOATS:
            x, bias = normal(2, tokens, 256, dtype=dtype, device=device), normal(2 * outputs, device=device)
            w = lowbit.quantize(normal(2 * outputs, 256, device=device) / 16, format)
            exact = x.double() @ w.dequantize(torch.float32).double().t() + bias.double()
            first, second = exact.chunk(2, -1)
            for weight in (w, w.pack()):
                for activation, function in ((None, functional.silu), ("none", ACTIVATIONS[None]), ("gelu", functional.gelu)):
                    y = lowbit.matmul(x, weight, bias, activation, torch.float32, gate=True)
                    assert y.shape == (2, tokens, outputs)
                    wanted = function(first) * second
                    assert (y.double() - wanted).norm() <= (1e-4 + 2 * rounding_of(device, dtype)) * wanted.norm()
                rounded = lowbit.matmul(x, weight, bias, gate=True)
                assert rounded.dtype == dtype
                assert same_bits(rounded, lowbit.matmul(x, weight, bias, out_dtype=torch.float32, gate=True).to(dtype))
            assert "gate: " in lowbit.explain(x, w, bias, gate=True)


@on_devices
def test_gate_of_quantized_tokens(device):
    x, w = normal(2, 3, 64, device=device), lowbit.quantize(normal(20, 64, device=device), "int8:row")
    q = lowbit.quantize(x, "int8:row")
    y = lowbit.matmul(q, w, gate=True)
    assert y.shape == (2, 3, 10)
    assert same_bits(y, lowbit.matmul(x, w, gate=True, x_format="int8:row"))


@on_devices
def test_int8_output(device):
    x, w = normal(6, 64, device=device), lowbit.quantize(normal(9, 64, device=device), "int8:row")
    q = lowbit.quantize(x, "int8:row")
    y = lowbit.matmul(q, w, out_dtype=torch.int8, output_scale=0.25)
    exact = lowbit.matmul(q, w, out_dtype=torch.float32)
    assert torch.equal(y, (exact / 0.25).round().clamp(-128, 127).to(torch.int8))


@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "q4_0"])
@on_devices
def test_any_strides(device, format):
    w = lowbit.quantize(normal(20, 256, device=device), format)
    whole = normal(6, 10, 256, device=device)
    flat = (normal(256, 8, device=device).t(), normal(4, 512, device=device)[:, ::2])
    for x in (whole[:, ::2], whole.transpose(0, 1), whole[:1].expand(3, -1, -1), *flat):
        assert same_bits(lowbit.matmul(x, w), lowbit.matmul(x.contiguous(), w))
    bias = normal(40, device=device)[::2]
    assert same_bits(lowbit.matmul(whole, w, bias), lowbit.matmul(whole, w, bias.contiguous()))


@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "q4_0", "fp16"])
@on_devices
def test_nothing_to_do(device, format):
    for lead, n, k in (((0,), 8, 64), ((2, 0), 8, 64), ((3,), 0, 64), ((3,), 8, 0)):
        x, w = normal(*lead, k, device=device), lowbit.quantize(normal(n, k, device=device), format)
        bias = normal(n, device=device)
        y = lowbit.matmul(x, w, bias)
        assert y.shape == (*lead, n)
        if k == 0:
            assert torch.equal(y, bias.expand(*lead, n))


@on_devices
def test_same_bits_every_time(device):
    x, w = normal(33, 1024, device=device), lowbit.quantize(normal(96, 1024, device=device), "int4:g128")
    first = lowbit.matmul(x, w)
    assert all(same_bits(lowbit.matmul(x, w), first) for _ in range(5))


@on_devices
def test_explain(device):
    kernels = {kernel["name"] for kernel in lowbit.info()["kernels"] if kernel["device"] == device and kernel["verb"] == "matmul"}
    for dtype in FLOATS:
        x, w = normal(2, 256, dtype=dtype, device=device), lowbit.quantize(normal(32, 256, device=device), "int4:g128")
        for weight in (w, w.pack()):
            chosen, *_ = lowbit.explain(x, weight, activation="silu").removeprefix("chosen: ").split(";")
            assert chosen in kernels


@pytest.mark.parametrize(
    "weight, tokens, family",
    [("int4:g128", "int8:row", "weight4_int8"), ("int4:row", "int8:row", "weight4_int8"), ("uint4:g32:asym", "int4:row", "weight4"),
     ("int8:g128", "fp8_e4m3:row", "weight8"), ("fp8_e4m3:row", "fp8_e4m3:row", "weight8"), ("q4_k", "fp8_e4m3:row", "blocks"), ("int8:row", "int8:row", "int8")],
)  # fmt: skip
def test_few_quantized_tokens_stream_the_weight(weight, tokens, family):
    """On the CPU. Decoding all of the weight first takes twenty times as long."""
    w, x = lowbit.quantize(torch.randn(48, 256), weight), torch.randn(3, 256)
    assert re.match(rf"chosen: cpu_\w+_{family};", lowbit.explain(lowbit.quantize(x, tokens), w))


def test_raw_products_of_few_tokens_stay_exact():
    w, x = lowbit.quantize(torch.randn(48, 256), "int4:row"), lowbit.quantize(torch.randn(3, 256), "int8:row")
    assert re.match(r"chosen: cpu_\w+_int8;", lowbit.explain(x, w, out_dtype=torch.int32))


@on_devices
def test_explain_says_that_nothing_can_run(device, monkeypatch):
    x, w = normal(3, 64, device=device), lowbit.quantize(normal(8, 64, device=device), "int4:g32")
    own = [kernel["name"] for kernel in lowbit.info()["kernels"] if kernel["device"] == device and kernel["verb"] == "matmul"]
    monkeypatch.setenv("LOWBIT_KERNEL", next(name for name in own if "int1" in name or "bits" in name))
    assert lowbit.explain(x, w).startswith("chosen: none")



@on_devices
def test_what_is_refused(device):
    x, w = normal(4, 96, device=device), lowbit.quantize(normal(8, 96, device=device), "int4:g32")
    for bad, text in (
        (lambda: lowbit.matmul(normal(4, 100, device=device), w), "w has k = 96 but x has k = 100"),
        (lambda: lowbit.matmul(x, w, bias=normal(7, device=device)), "bias has 7 values"),
        (lambda: lowbit.matmul(x, w, bias=normal(8, 1, device=device)), "bias has 2 dimensions"),
        (lambda: lowbit.matmul(x, w, activation="tanh"), "activation"),
        (lambda: lowbit.matmul(x, w, bias=normal(4, device=device), gate=True), "bias has 4 values, but y has 2N = 8"),
        (lambda: lowbit.matmul(x, lowbit.quantize(normal(7, 96, device=device), "int4:g32"), gate=True), "weight has 7 rows"),
        (lambda: lowbit.matmul(x, w, out_dtype=torch.int32), "integer codes on both sides"),
        (lambda: lowbit.matmul(x, w, out_dtype=torch.float64), "dtype"),
        (lambda: lowbit.matmul(x, w, x_format="int3:row"), "int3"),
        (lambda: lowbit.matmul(x.double(), w), "dtype"),
        (lambda: lowbit.matmul(x, lowbit.quantize(normal(2, 4, 96, device=device), "int4:g32")), "use a matrix"),
        (lambda: lowbit.matmul(x, normal(8, 96, device=device).reshape(2, 4, 96)), "use a matrix"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
    with pytest.raises(TypeError):
        lowbit.matmul([1.0], w)


@needs_cuda
@pytest.mark.parametrize("product", ["bf16", "int8", "int4"])
def test_more_results_than_32_bits_count(product):
    """70,000 x 70,000: offsets beyond 2^32, in elements and in bytes."""
    size, k, step = 70000, 128, 2000
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    generator = torch.Generator(device="cuda").manual_seed(1)
    x, w = (torch.randint(-8, 8, (size, k), device="cuda", generator=generator, dtype=torch.int8) for _ in range(2))
    if product == "int8":
        y = lowbit.int8_matmul(x, w.t())
    elif product == "bf16":
        y = lowbit.matmul(x.bfloat16(), w.bfloat16())
    else:
        packed = lowbit.quantize(w.float(), "int4:g128")
        w = packed.dequantize(torch.float32)
        y = lowbit.matmul(x.bfloat16(), packed.pack())
    for first in range(0, size, step):
        expected = x[first : first + step].float() @ w.float().t()
        if product == "int4":
            torch.testing.assert_close(y[first : first + step].float(), expected, rtol=2.0**-6, atol=6.0)
        else:
            assert torch.equal(y[first : first + step], expected.to(y.dtype)), f"rows from {first} on"
