"""The functions with the names and shapes that people know."""

import pytest

from torch_cases import FLOATS, lowbit, normal, on_devices, same_bits, torch

try:
    import gguf
    from gguf import quants
except ImportError:
    gguf = None
needs_gguf = pytest.mark.skipif(gguf is None, reason="the package gguf, which these blocks are compared with, is not installed")

SIZES = [(1, 1, 1), (3, 5, 7), (16, 16, 64), (33, 65, 129), (1, 100, 256), (0, 4, 8), (4, 0, 8), (4, 3, 0)]


def random_int8(*shape, device, low=-128, high=128):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.int8).to(device)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_quantize_tensor(device, dtype):
    for shape in ((7,), (5, 33), (2, 3, 64), (0, 4)):
        x = normal(*shape, dtype=dtype)
        q, scale = lowbit.quantize_tensor(x.to(device))
        assert q.dtype == torch.int8 and q.shape == shape and scale.shape == () and scale.device.type == device
        q, scale = q.cpu(), scale.cpu()  # where torch's own division is exact
        if x.numel():
            assert same_bits(scale, x.float().abs().max() / 127)
            assert torch.equal(q, (x.float() / scale).round().to(torch.int8))
        back = lowbit.dequantize_tensor(q, scale)
        assert back.dtype == torch.float32 and (back - x.float()).abs().le(0.51 * scale).all()


@on_devices
def test_int8_matmul(device):
    for m, n, k in SIZES:
        a, b = random_int8(m, k, device=device), random_int8(k, n, device=device)
        exact = a.cpu().long() @ b.cpu().long()
        c = lowbit.int8_matmul(a, b)
        assert c.dtype == torch.int32 and torch.equal(c.cpu().long(), exact)
        assert torch.equal(lowbit.int8_matmul(a, b, 0.5, 0.25, 2.0).cpu().long(), exact)  # int32 is raw
        for dtype in FLOATS:
            scaled = lowbit.int8_matmul(a, b, 0.5, 0.25, 2.0 ** -6, out_dtype=dtype)
            assert scaled.dtype == dtype and torch.equal(scaled.cpu(), (exact.float() * 2.0**-9).to(dtype))


@on_devices
def test_int8_matmul_reads_back(device):
    A, B = normal(24, 96, device=device), normal(96, 40, device=device)
    (a, scale_a), (b, scale_b) = lowbit.quantize_tensor(A), lowbit.quantize_tensor(B)
    read = lowbit.dequantize_tensor(lowbit.int8_matmul(a, b), scale_a * scale_b)
    scaled = lowbit.int8_matmul(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert torch.allclose(read, scaled, rtol=1e-6)
    assert torch.linalg.norm(read - A @ B) / torch.linalg.norm(A @ B) < 0.02


@on_devices
def test_scales_per_row_and_column(device):
    a, b = random_int8(6, 32, device=device), random_int8(32, 9, device=device)
    rows, columns = normal(6, device=device), normal(9, device=device)
    scaled = lowbit.int8_matmul(a, b, rows, columns, 0.5, out_dtype=torch.float32)
    exact = a.double() @ b.double() * rows.double()[:, None] * columns.double() * 0.5
    assert torch.allclose(scaled.double(), exact, rtol=1e-6)
    with pytest.raises(ValueError, match="scale_b has 6 numbers"):
        lowbit.int8_matmul(a, b, 1, rows, out_dtype=torch.float32)


def pack_int4(codes):
    """[rows, K] of -8..7 -> [rows, (K+1)/2], low nibble first; a spare high nibble holds rubbish that must not count."""
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1), value=5)
    low, high = codes[:, 0::2] & 15, codes[:, 1::2] & 15
    return (low | high << 4).to(torch.uint8)


@on_devices
def test_int4_matmul(device):
    for m, n, k in SIZES:
        a, b = random_int8(m, k, device="cpu", low=-8, high=8), random_int8(n, k, device="cpu", low=-8, high=8)
        packed_a, packed_b = pack_int4(a).to(device), pack_int4(b).t().contiguous().to(device)
        exact = a.long() @ b.long().t()
        assert packed_a.shape == (m, (k + 1) // 2) and packed_b.shape == ((k + 1) // 2, n)
        c = lowbit.int4_matmul(packed_a, packed_b, K=k)
        assert c.dtype == torch.int32 and c.shape == (m, n) and torch.equal(c.cpu().long(), exact)
        scaled = lowbit.int4_matmul(packed_a, packed_b, 0.5, 0.25, out_dtype=torch.float32, K=k)
        assert torch.equal(scaled.cpu(), exact.float() * 0.125)
        if k % 2 == 0:
            assert torch.equal(lowbit.int4_matmul(packed_a, packed_b), c)


@on_devices
def test_ggml_blocks(device):
    for lead, k in (((), 32), ((3,), 64), ((2, 5), 256), ((0,), 32)):
        x = normal(*lead, k, device=device)
        q4, q8 = lowbit.quantize_q4_0(x), lowbit.quantize_q8_1(x)
        assert q4.shape == (*lead, k // 32, 18) and q8.shape == (*lead, k // 32, 36) and q4.dtype == q8.dtype == torch.uint8
        back = lowbit.dequantize_q4_0(q4, k)
        assert back.shape == x.shape and back.dtype == torch.float32
        if x.numel():
            assert torch.linalg.norm(back - x) / torch.linalg.norm(x) < 0.15


@needs_gguf
@on_devices
def test_q4_0_as_gguf(device):
    x = normal(50, 256, device=device)
    q = lowbit.quantize_q4_0(x)
    wanted = torch.from_numpy(quants.quantize(x.cpu().numpy(), gguf.GGMLQuantizationType.Q4_0)).reshape(50, 8, 18)
    assert torch.equal(q.cpu(), wanted)
    back = torch.from_numpy(quants.dequantize(wanted.reshape(50, -1).numpy(), gguf.GGMLQuantizationType.Q4_0))
    assert torch.equal(lowbit.dequantize_q4_0(q, 256).cpu(), back)


@on_devices
def test_gemm_q4_0_q8_1(device):
    for m, n, k in ((1, 1, 32), (65, 3, 256), (7, 33, 96), (128, 0, 64)):
        weight, activation = lowbit.quantize_q4_0(normal(m, k, device=device)), lowbit.quantize_q8_1(normal(n, k, device=device, seed=1))
        y = lowbit.gemm_q4_0_q8_1(weight, activation, m, n, k)
        assert y.shape == (m, n) and y.dtype == torch.float32 and y.is_contiguous()
        decoded = lowbit.QTensor(activation.reshape(n, k // 32 * 36), format="q8_1", shape=(n, k)).dequantize().double()
        exact = lowbit.dequantize_q4_0(weight, k).double() @ decoded.t()
        assert torch.allclose(y.double(), exact, rtol=1e-4, atol=1e-4)


@on_devices
def test_what_is_refused(device):
    a, b = random_int8(4, 6, device=device), random_int8(6, 3, device=device)
    q4, q8 = lowbit.quantize_q4_0(normal(4, 64, device=device)), lowbit.quantize_q8_1(normal(2, 64, device=device))
    for bad, text in (
        (lambda: lowbit.int8_matmul(a, b.t()), "A has K = 6 but B has K = 3"),
        (lambda: lowbit.int8_matmul(a.int(), b), "A is torch.int32"),
        (lambda: lowbit.int8_matmul(a[0], b), "use an int8 matrix"),
        (lambda: lowbit.int4_matmul(a.view(torch.uint8), b.view(torch.uint8), K=10), "K = 10 takes 5 bytes"),
        (lambda: lowbit.int4_matmul(a.int(), b), "use a matrix of uint8"),
        (lambda: lowbit.quantize_q4_0(normal(4, 40, device=device)), "pad K to 64"),
        (lambda: lowbit.dequantize_q4_0(q4, 32), "with K = 32 it is uint8"),
        (lambda: lowbit.dequantize_q4_0(q4, 33), "K = 33 is not a multiple of 32"),
        (lambda: lowbit.gemm_q4_0_q8_1(q4, q8, 5, 2, 64), "M = 5"),
        (lambda: lowbit.gemm_q4_0_q8_1(q4, q8, 4, 3, 64), "N = 3"),
        (lambda: lowbit.gemm_q4_0_q8_1(q4, q4, 4, 4, 64), "activation_q is"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
