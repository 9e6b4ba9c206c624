"""lowbit.gemm and lowbit.convert, against torch in float64 and to the bit."""

import pytest

from torch_cases import FLOATS, lowbit, needs_cuda, normal, on_devices, same_bits, torch

SIZES = [(1, 1, 1), (3, 5, 7), (16, 16, 64), (33, 65, 129), (1, 100, 256), (130, 264, 208), (0, 4, 8), (4, 0, 8), (4, 3, 0)]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
OPS = torch.ops.lowbit


def assert_gemm(found, a, b, c=None, alpha=1.0, beta=0.0):
    """alpha a b + beta c in float64, within the bound of docs/formats.md, and a rounding of what is added."""
    addition = 2.0**-24 if found.device.type == "cpu" else 2.0**-23
    a, b, found = a.double().cpu(), b.double().cpu(), found.cpu()
    added = beta * c.double().cpu() if beta else torch.zeros(())
    exact, sums = alpha * (a @ b) + added, abs(alpha) * (a.abs() @ b.abs())
    finfo = torch.finfo(found.dtype)
    bound = (a.shape[1] + 8) * addition * sums + 2.0**-23 * added.abs() + finfo.eps * exact.abs() + finfo.tiny
    assert found.shape == exact.shape and ((found.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("out_dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_gemm(device, dtype, out_dtype):
    for m, n, k in SIZES:
        a, b = normal(m, k, dtype=dtype, device=device), normal(k, n, dtype=dtype, device=device, seed=1)
        c = normal(m, n, dtype=out_dtype, device=device, seed=2)
        kept = c.clone()
        for right in (b, b.t().contiguous().t()):  # row-major, and the transposed view of [N, K]
            assert_gemm(lowbit.gemm(a, right, out_dtype=out_dtype), a, b)
            found = lowbit.gemm(a, right, c, alpha=0.5, beta=-1.25, out_dtype=out_dtype)
            assert found.dtype == out_dtype and found.is_contiguous() and found.data_ptr() != c.data_ptr() or c.numel() == 0
            assert_gemm(found, a, b, c, 0.5, -1.25)
        assert same_bits(c, kept)


@on_devices
def test_gemm_takes_views(device):
    """Mixed types and strides; a c of another type is widened; what beta = 0 leaves alone may be NaN."""
    a = normal(40, 96, dtype=torch.bfloat16, device=device)[::2, 3:67]
    b = normal(64, 80, dtype=torch.float16, device=device)[:, 5:29]
    c = normal(24, 20, dtype=torch.bfloat16, device=device).t()
    assert_gemm(lowbit.gemm(a, b), a, b)
    assert_gemm(lowbit.gemm(a, b, c, beta=2.0), a, b, c, beta=2.0)
    assert_gemm(lowbit.gemm(normal(64, 20, device=device).t(), b), normal(64, 20, device=device).t(), b)
    nothing = torch.full((20, 24), float("nan"), device=device)
    assert same_bits(lowbit.gemm(a, b, nothing), lowbit.gemm(a, b))
    once = normal(1, 24, device=device).expand(20, 24)
    assert_gemm(lowbit.gemm(a, b, once, beta=1.0), a, b, once, beta=1.0)


@on_devices
def test_gemm_refuses(device):
    a, b, c = normal(4, 8, device=device), normal(8, 6, device=device), normal(4, 6, device=device)
    for text, call in {
        "a has K = 8 but b has K = 6": lambda: lowbit.gemm(a, b.t()),
        "a has 1 dimensions; use two": lambda: lowbit.gemm(a[0], b),
        "beta = 1.0.*, but there is no c": lambda: lowbit.gemm(a, b, beta=1.0),
        "c is 6 x 4 but a . b is 4 x 6": lambda: lowbit.gemm(a, b, c.t(), beta=1.0),
        "c has another dtype than the result": lambda: lowbit.gemm(a, b, c, beta=1.0, out_dtype=torch.bfloat16),
        "dtype has a dtype that lowbit does not take": lambda: lowbit.gemm(a, b, out_dtype=torch.float64),
        "x is fp8_e4m3; use fp32, fp16 or bf16": lambda: lowbit.gemm(a.to(torch.float8_e4m3fn), b),
        "use fp32, fp16, bf16": lambda: lowbit.gemm(a, b, out_dtype=torch.float8_e5m2),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()


@needs_cuda
def test_gemm_on_one_device():
    with pytest.raises(ValueError, match="b is on cuda:0 but a is on cpu"):
        lowbit.gemm(normal(4, 8), normal(8, 6, device="cuda"))


def saturated(x, dtype):
    """What lowbit.convert makes of numbers, in torch's words: its own conversion of numbers beyond a float8 type is not a number."""
    if dtype not in FLOAT8:
        return x.to(dtype)
    most = torch.finfo(dtype).max
    return x.float().clamp(-most, most).to(dtype)  # clamp keeps NaN


@pytest.mark.parametrize("dtype", FLOATS + FLOAT8, ids=str)
@on_devices
def test_convert(device, dtype):
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, 65504.0, 65520.0, 1e6, 2.0**-10, 1.0 + 2.0**-9, 479.0])
    numbers = torch.cat((special, normal(2000), normal(1000) * 1e-3, normal(1000) * 300))
    for source in FLOATS + FLOAT8:
        x = saturated(numbers, source)
        for shaped in (x[:4000].reshape(40, 100), x[:4000].reshape(40, 100).t(), x[:4008].reshape(2, 3, 668), x[1:], x[:4000].reshape(40, 100)[:, 3:50], x[:0]):
            wanted = saturated(shaped, dtype)
            on_device = torch.empty_strided(shaped.shape, shaped.stride(), dtype=source, device=device)
            on_device.copy_(shaped)
            found = lowbit.convert(on_device, dtype).cpu()
            assert found.dtype == dtype and found.shape == shaped.shape and found.is_contiguous()
            found, wanted = found.float(), wanted.float()
            assert torch.equal(found.isnan(), wanted.isnan()) and same_bits(found.nan_to_num(), wanted.nan_to_num())


def test_convert_refuses():
    for text, call in {
        "x has a dtype that lowbit does not take": lambda: lowbit.convert(normal(3).double(), torch.float16),
        "y is int8; use fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2": lambda: lowbit.convert(normal(3), torch.int8),
        "x is a single number": lambda: lowbit.convert(torch.tensor(1.0), torch.float16),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()


@on_devices
def test_opcheck_of_plain_numbers(device):
    a, b, c = normal(4, 8, device=device), normal(8, 6, dtype=torch.bfloat16, device=device), normal(4, 6, device=device)
    torch.library.opcheck(OPS.gemm.default, (a, b), dict(dtype=torch.float16))
    torch.library.opcheck(OPS.gemm.default, (a, b.t().contiguous().t(), c), dict(dtype=torch.float32, alpha=2.0, beta=0.5))
    torch.library.opcheck(OPS.convert.default, (a, torch.bfloat16))


@on_devices
def test_compiled_gemm(device):
    def through(a, b, c):
        return lowbit.convert(lowbit.gemm(a, b.t(), c * 2, alpha=0.5, beta=1.0), torch.bfloat16)

    torch._dynamo.reset()
    compiled = torch.compile(through, fullgraph=True, backend="aot_eager")
    for m in (2, 5, 9):
        operands = normal(m, 64, device=device), normal(16, 64, device=device), normal(m, 16, device=device)
        assert same_bits(compiled(*operands), through(*operands))


@needs_cuda
@pytest.mark.parametrize("m", [1, 16, 100])
def test_gemm_in_a_graph(m):
    a, b = normal(m, 512, dtype=torch.bfloat16, device="cuda"), normal(512, 256, dtype=torch.bfloat16, device="cuda")
    c = normal(m, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        lowbit.gemm(a, b, c, beta=0.5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = lowbit.gemm(a, b, c, beta=0.5)
    for seed in (1, 2):
        a.copy_(normal(m, 512, dtype=torch.bfloat16, device="cuda", seed=seed))
        graph.replay()
        assert same_bits(found, lowbit.gemm(a, b, c, beta=0.5))
