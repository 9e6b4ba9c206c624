"""Binary products: exact integers against torch over signs in float64, straight-through gradients, the ops, what is refused."""

import pytest

from torch_cases import FLOATS, exact_conv2d, lowbit, needs_cuda, normal, on_devices, same_bits, signs, torch

from lowbit import _bits

nn, functional = torch.nn, torch.nn.functional
BinaryLinear, BinaryConv2d = lowbit.nn.BinaryLinear, lowbit.nn.BinaryConv2d

# images, channels, height, width, outputs, kernel, stride, padding, dilation, groups
CASES = [
    (1, 1, 1, 1, 1, 1, 1, 0, 1, 1),
    (2, 3, 9, 11, 5, 3, 1, 1, 1, 1),
    (1, 8, 6, 5, 7, 3, 1, 0, 1, 1),
    (3, 17, 7, 8, 4, (2, 3), (2, 1), (0, 2), 1, 1),
    (2, 64, 8, 8, 16, 1, 1, 0, 1, 1),
    (2, 128, 5, 5, 9, 1, 1, 0, 1, 1),
    (2, 130, 5, 7, 3, 1, 2, 0, 1, 1),
    (1, 5, 4, 4, 3, 1, 1, 2, 1, 1),  # patches that are padding alone
    (2, 5, 1, 1, 3, 1, 5, 2, 1, 1),
    (2, 16, 12, 10, 8, 3, 2, 2, (2, 3), 1),
    (2, 16, 3, 3, 4, 5, 1, 4, 1, 1),  # padding wider than the image
    (1, 33, 13, 6, 31, (5, 1), (3, 2), (4, 0), (1, 2), 1),
    (2, 24, 10, 7, 6, (3, 2), (2, 1), (2, 0), (2, 3), 3),
    (2, 6, 5, 5, 12, 3, 1, 1, 1, 6),  # depthwise
    (2, 256, 4, 4, 64, 3, 1, 1, 1, 2),
    (2, 4, 5, 5, 6, 2, 1, "same", 1, 1),
    (1, 9, 6, 7, 2, (4, 3), 1, "same", (3, 2), 1),
    (1, 9, 6, 7, 2, 3, 2, "valid", 1, 1),
    (0, 8, 5, 5, 4, 3, 1, 1, 1, 1),
    (2, 8, 5, 5, 0, 3, 1, 1, 1, 1),
]  # fmt: skip

# channels, size, outputs, kernel, stride, padding
RESNET_50 = [
    (3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 0), (256, 56, 128, 1, 1, 0), (128, 56, 128, 3, 2, 1),
    (256, 56, 512, 1, 2, 0), (256, 14, 256, 3, 1, 1), (1024, 14, 512, 1, 1, 0), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 0),
]  # fmt: skip
BIREALNET_18 = [
    (64, 56, 64, 3, 1, 1), (64, 56, 128, 3, 2, 1), (128, 28, 128, 3, 1, 1), (128, 28, 256, 3, 2, 1), (256, 14, 512, 3, 2, 1),
    (512, 7, 512, 3, 1, 1),
]  # fmt: skip


def with_zeros(*shape, **options):
    """Normal numbers, some of them 0 and -0."""
    x = normal(*shape, **options)
    flat = x.reshape(-1)
    flat[::5], flat[::7] = 0.0, -0.0
    return x


def assert_conv2d(case, device="cpu", dtype=torch.float32):
    images, channels, height, width, outputs, kernel, *window, groups = case
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    x = with_zeros(images, channels, height, width, dtype=dtype, device=device)
    weight = with_zeros(outputs, channels // groups, *size, dtype=dtype, device=device)
    wanted = exact_conv2d(x, weight, *window, groups)
    counts = lowbit.binary_conv2d(x, weight, *window, groups, out_dtype=torch.int32)
    assert counts.shape == wanted.shape and counts.dtype == torch.int32 and counts.device == x.device
    assert torch.equal(counts.cpu().double(), wanted)
    y = lowbit.binary_conv2d(x, weight, *window, groups)
    assert y.dtype == dtype and torch.equal(y.cpu(), wanted.to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@on_devices
def test_convolutions_are_exact(device, case, dtype):
    assert_conv2d(case, device, dtype)


def assert_linear(device="cpu"):
    for tokens, outputs, inputs in ((1, 1, 1), (5, 7, 33), (40, 130, 200), (3, 4, 1152), (9, 3, 128)):
        x, weight = with_zeros(tokens, inputs, device=device), with_zeros(outputs, inputs, device=device)
        wanted = signs(x) @ signs(weight).t()
        for filters in (weight, _bits.weight_bits(weight[:, :, None, None])):
            for dtype in (torch.int32, torch.float32):
                counts = torch.ops.lowbit.binary_linear(x, filters, dtype)
                assert counts.dtype == dtype and torch.equal(counts.cpu().double(), wanted)


@pytest.mark.parametrize("row_bytes", [16, 64])
def test_rows_that_are_filled_up(row_bytes, monkeypatch):
    """What a GPU is given, here on the CPU."""
    monkeypatch.setitem(_bits._ROW_BYTES, "cpu", row_bytes)
    assert_linear()


@pytest.mark.parametrize("scratch", [1, 3000, 20000])
@on_devices
def test_parts_of_a_batch(device, scratch, monkeypatch):
    """Token by token, and some at a time."""
    monkeypatch.setitem(_bits._SCRATCH_BYTES, device, scratch)
    assert_linear(device)


def bits_by_hand(x, groups):
    """[images, channels, height, width] -> uint8 [images, height, width, bytes], in torch alone."""
    last = (x.cpu() < 0).permute(0, 2, 3, 1).unflatten(-1, (groups, -1))
    bytes = functional.pad(last.to(torch.uint8), (0, -last.shape[-1] % 8)).unflatten(-1, (-1, 8))
    return (bytes << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8).flatten(3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_sign_bits(device, dtype):
    for shape, groups in (
        ((1, 1, 1, 1), 1), ((2, 3, 5, 4), 1), ((3, 8, 4, 5), 1), ((2, 65, 3, 7), 1), ((2, 24, 5, 3), 3), ((1, 6, 5, 3), 6),
        ((2, 200, 9, 9), 2), ((0, 8, 3, 3), 1), ((2, 64, 30, 31), 1),
    ):  # fmt: skip
        x = with_zeros(*shape, dtype=dtype, device=device)
        wanted = bits_by_hand(x, groups)
        bits = lowbit.sign_bits(x, groups)
        assert bits.dtype == torch.uint8 and bits.device == x.device and bits.is_contiguous() and torch.equal(bits.cpu(), wanted)
        assert bits.shape == (shape[0], *shape[2:], groups * -(-(shape[1] // groups) // 8))
        swapped, wide = x.transpose(2, 3).contiguous().transpose(2, 3), x.repeat(1, 1, 1, 2)[..., : shape[3]]
        for same in (x.to(memory_format=torch.channels_last), swapped, wide):
            assert torch.equal(lowbit.sign_bits(same, groups).cpu(), wanted)
        if shape[0]:
            assert torch.equal(lowbit.sign_bits(x[0], groups).cpu(), wanted[0])
    x = normal(1, 8, 2, 2, device=device).requires_grad_()
    assert not lowbit.sign_bits(x).requires_grad
    nan, infinity = float("nan"), float("inf")
    special = torch.tensor([0.0, -0.0, nan, 1e-45, -1e-45, infinity, -infinity, -3e-39], device=device).reshape(1, 8, 1, 1)
    assert lowbit.sign_bits(special).item() == 0b11010000


@pytest.mark.parametrize("case", CASES, ids=str)
@on_devices
def test_convolutions_of_bits(device, case):
    images, channels, height, width, outputs, kernel, *window, groups = case
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    x = with_zeros(images, channels, height, width, device=device)
    weight = with_zeros(outputs, channels // groups, *size, device=device)
    bits = lowbit.sign_bits(x, groups)
    wanted = exact_conv2d(x, weight, *window, groups)
    counts = lowbit.binary_conv2d(bits, weight, *window, groups, out_dtype=torch.int32)
    assert counts.shape == wanted.shape and counts.dtype == torch.int32 and counts.device == x.device
    assert torch.equal(counts.cpu().double(), wanted) and (0 in counts.shape or counts.is_contiguous(memory_format=torch.channels_last))
    y = lowbit.binary_conv2d(bits, weight, *window, groups)
    assert y.dtype == torch.float32 and torch.equal(y.cpu().double(), wanted)
    scale, bias = normal(outputs, device=device), normal(outputs, device=device, seed=1)
    for dtype in FLOATS:
        finished = lowbit.binary_conv2d(bits, weight, *window, groups, scale, bias, out_dtype=dtype)
        assert same_bits(finished, lowbit.binary_conv2d(x, weight, *window, groups, scale, bias, out_dtype=dtype))


@pytest.mark.parametrize("case", [case for case in CASES if 0 not in case[:5]], ids=str)
@on_devices
def test_gradients_of_a_weight_with_bits(device, case, monkeypatch):
    """To all but x, as with the numbers themselves."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    images, channels, height, width, outputs, kernel, *window, groups = case
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    x = normal(images, channels, height, width, device=device)
    weight = normal(outputs, channels // groups, *size, device=device) * 0.7
    numbers = [weight, normal(outputs, device=device), normal(outputs, device=device, seed=1)]

    def gradients(x):
        weight, scale, bias = (number.clone().requires_grad_() for number in numbers)
        y = lowbit.binary_conv2d(x, weight, *window, groups, scale, bias)
        (y * normal(*y.shape, device=device, seed=2)).sum().backward()
        return y.detach(), weight.grad, scale.grad, bias.grad

    for mine, wanted in zip(gradients(lowbit.sign_bits(x, groups)), gradients(x)):
        assert torch.allclose(mine, wanted, rtol=1e-5, atol=1e-5)


@on_devices
def test_scale_and_bias_with_and_without_gradients(device):
    """In the op, and as steps of torch's after it: the same bits, -0 included."""
    x, weight = normal(2, 12, 5, 5, device=device), normal(6, 12, 2, 2, device=device)
    scale, bias = normal(6, device=device), normal(6, device=device, seed=1)
    for factor in (None, -0.3, 2, scale, -scale, scale.double(), "mean"):
        for added in (None, bias, bias.half(), bias.bfloat16(), bias.double(), 1e9 * bias):
            for dtype in FLOATS:
                without = lowbit.binary_conv2d(x, weight, padding=1, scale=factor, bias=added, out_dtype=dtype)
                with_them = lowbit.binary_conv2d(x.clone().requires_grad_(), weight, padding=1, scale=factor, bias=added, out_dtype=dtype)
                assert with_them.requires_grad and not without.requires_grad and same_bits(without, with_them)


@pytest.mark.parametrize("layer", sorted({*RESNET_50, *BIREALNET_18}), ids=str)
@on_devices
def test_layers_of_known_networks(device, layer):
    channels, size, outputs, kernel, stride, padding = layer
    assert_conv2d((2 if size < 56 else 1, channels, size, size, outputs, kernel, stride, padding, 1, 1), device)


@on_devices
def test_every_product_is_a_count_of_differences(device):
    for k in (1, 7, 8, 63, 64, 65, 127, 128, 1000):
        x, weight = normal(5, k, device=device), normal(9, k, device=device)
        differences = ((x[:, None] < 0) != (weight[None] < 0)).sum(-1)
        assert torch.equal(lowbit.binary_linear(x, weight, out_dtype=torch.int32).long(), k - 2 * differences)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_linear_is_exact(device, dtype):
    for lead, outputs, inputs in (
        ((), 3, 8), ((1,), 1, 1), ((5,), 7, 33), ((2, 3), 130, 200), ((3,), 4, 1152), ((0,), 4, 16), ((2, 0), 4, 16), ((3,), 4, 0),
        ((3,), 0, 8),
    ):  # fmt: skip
        x, weight = with_zeros(*lead, inputs, dtype=dtype, device=device), with_zeros(outputs, inputs, dtype=dtype, device=device)
        wanted = signs(x) @ signs(weight).t()
        assert torch.equal(lowbit.binary_linear(x, weight, out_dtype=torch.int32).cpu().double(), wanted)
        y = lowbit.binary_linear(x, weight)
        assert y.dtype == dtype and y.shape == (*lead, outputs) and torch.equal(y.cpu(), wanted.to(dtype))


@on_devices
def test_what_a_sign_is(device):
    """As in the format int1: -1 below 0, however little, else +1."""
    nan, infinity = float("nan"), float("inf")
    x = torch.tensor([0.0, -0.0, nan, 1e-45, -1e-45, infinity, -infinity, -3e-39], device=device)
    wanted = torch.tensor([1, 1, 1, 1, -1, 1, -1, -1])
    eye = torch.eye(8, device=device) - 0.5  # row i: +1 at i alone
    rows = lowbit.binary_linear(x, eye, out_dtype=torch.int32).cpu()
    assert torch.equal((rows + wanted.sum()) // 2, wanted)
    assert torch.equal(lowbit.binary_linear(eye, x[None], out_dtype=torch.int32).cpu()[:, 0], rows)


@on_devices
def test_images_without_a_batch(device):
    x, weight = normal(6, 5, 4, device=device), normal(3, 6, 3, 3, device=device)
    assert same_bits(lowbit.binary_conv2d(x, weight, padding=1), lowbit.binary_conv2d(x[None], weight, padding=1)[0])


@on_devices
def test_any_strides(device):
    x, weight = normal(2, 16, 6, 5, device=device), normal(4, 16, 3, 3, device=device)
    wanted = lowbit.binary_conv2d(x, weight, padding=1)
    assert wanted.is_contiguous()
    last = lowbit.binary_conv2d(x.to(memory_format=torch.channels_last), weight, padding=1)
    assert torch.equal(last, wanted) and last.is_contiguous(memory_format=torch.channels_last)
    swapped = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(lowbit.binary_conv2d(swapped, weight.to(memory_format=torch.channels_last), padding=1), wanted)
    assert torch.equal(lowbit.binary_conv2d(x[:, :, ::2], weight), lowbit.binary_conv2d(x[:, :, ::2].contiguous(), weight))
    wide = normal(3, 40, device=device)
    assert torch.equal(lowbit.binary_linear(wide[:, ::2], wide[:, 1::2]), lowbit.binary_linear(wide[:, ::2].clone(), wide[:, 1::2].clone()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_scale_and_bias(device, dtype):
    x, weight = normal(2, 12, 5, 5, dtype=dtype, device=device), normal(6, 12, 3, 3, dtype=dtype, device=device)
    scale, bias = normal(6, device=device), normal(6, dtype=dtype, device=device)
    mean = weight.abs().mean((1, 2, 3), dtype=torch.float64).float()
    counts = exact_conv2d(x, weight, padding=1).float().to(device)
    for given, factor in ((None, torch.ones(6)), (0.25, torch.full((6,), 0.25)), (scale, scale), ("mean", mean)):
        factor = factor.to(device)
        wanted = (counts * factor.reshape(6, 1, 1) + bias.float().reshape(6, 1, 1)).to(dtype)
        assert same_bits(lowbit.binary_conv2d(x, weight, padding=1, scale=given, bias=bias), wanted)
        flat, tokens = weight.flatten(1), x.flatten(2).transpose(1, 2).repeat(1, 1, 9)
        wanted = ((signs(tokens) @ signs(flat).t()).float().to(device) * factor + bias.float()).to(dtype)
        assert same_bits(lowbit.binary_linear(tokens, flat, given, bias), wanted)
    exact = lowbit.binary_conv2d(x, weight, padding=1, out_dtype=torch.float32)
    assert exact.dtype == torch.float32 and torch.equal(exact, counts)


class PlainSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x < 0, -1.0, 1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def plain_conv2d(x, weight, stride, padding, dilation, groups, scale, bias):
    """The same in torch alone."""
    if isinstance(scale, str):
        scale = weight.abs().mean((1, 2, 3))
    y = functional.conv2d(PlainSign.apply(x), PlainSign.apply(weight), None, stride, padding, dilation, groups)
    return y * scale.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)


@pytest.mark.parametrize("scale", ["mean", "learned"])
@pytest.mark.parametrize("case", [case for case in CASES if 0 not in case[:5]], ids=str)
@on_devices
def test_gradients_of_convolutions(device, case, scale, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    images, channels, height, width, outputs, kernel, *window, groups = case
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    numbers = [normal(images, channels, height, width, device=device), normal(outputs, channels // groups, *size, device=device) * 0.7,
               normal(outputs, device=device), normal(outputs, device=device, seed=1)]  # fmt: skip

    def gradients(function, dtype):
        x, weight, bias, factor = (number.to(dtype, copy=True).requires_grad_() for number in numbers)
        y = function(x, weight, *window, groups, "mean" if scale == "mean" else factor, bias)
        (y * normal(*y.shape, device=device, seed=2).to(dtype)).sum().backward()
        return [y.detach(), x.grad, weight.grad, bias.grad] + ([factor.grad] if scale == "learned" else [])

    found = gradients(lowbit.binary_conv2d, torch.float32)
    for mine, wanted in zip(found, gradients(plain_conv2d, torch.float64)):
        assert mine.shape == wanted.shape and torch.allclose(mine.double(), wanted, rtol=1e-4, atol=1e-4)
    assert (found[1][numbers[0].abs() > 1] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_gradients_of_linear(device, dtype):
    numbers = [normal(*shape, dtype=dtype, device=device) for shape in ((2, 3, 20), (5, 20), (5,))]
    x, weight, bias = (number.clone().requires_grad_() for number in numbers)
    y = lowbit.binary_linear(x, weight, "mean", bias)
    y.sum().backward()
    px, pw, pb = (number.double().requires_grad_() for number in numbers)
    wanted = functional.linear(PlainSign.apply(px), PlainSign.apply(pw)) * pw.abs().mean(1) + pb
    wanted.sum().backward()
    eps = torch.finfo(dtype).eps
    for found, exact in ((y, wanted), (x.grad, px.grad), (weight.grad, pw.grad), (bias.grad, pb.grad)):
        assert found.dtype == dtype and torch.allclose(found.detach().double(), exact.detach(), rtol=4 * eps, atol=32 * eps)


@on_devices
def test_gradients_of_nothing(device):
    x = normal(0, 4, 5, 5, device=device).requires_grad_()
    weight = normal(2, 4, 3, 3, device=device).requires_grad_()
    lowbit.binary_conv2d(x, weight, padding=1, scale="mean").sum().backward()
    assert x.grad.shape == x.shape and torch.equal(weight.grad, torch.zeros_like(weight))


def test_gradients_that_are_not_there():
    x = normal(1, 4, 5, 5).requires_grad_()
    y = lowbit.binary_conv2d(x, normal(2, 4, 3, 3), out_dtype=torch.int32)
    assert not y.requires_grad
    with torch.no_grad():
        assert not lowbit.binary_conv2d(x, normal(2, 4, 3, 3)).requires_grad


@on_devices
def test_the_op(device):
    ops = torch.ops.lowbit
    x, weight = normal(2, 6, 7, 5, device=device).requires_grad_(), normal(4, 3, 3, 2, device=device).requires_grad_()
    scale, bias = normal(4, device=device).requires_grad_(), normal(4, device=device, seed=1).requires_grad_()
    how = ([3, 2], [2, 1], [1, 0, 2, 1], [1, 2], 2, 3)
    torch.library.opcheck(ops.binary_conv2d.default, (x, weight, None, None, *how, torch.float32))
    torch.library.opcheck(ops.binary_conv2d.default, (x, weight, scale, bias, *how, torch.float32))
    bits = _bits.weight_bits(weight)
    numbers = x.detach()
    for images in (numbers, numbers.to(memory_format=torch.channels_last), numbers[:, :, ::2].clone(), numbers[:0], lowbit.sign_bits(x, 2)):
        for filters in (bits, weight.detach()):
            torch.library.opcheck(ops.binary_conv2d.default, (images, filters, None, None, *how, torch.int32))
            torch.library.opcheck(ops.binary_conv2d_no_grad.default, (images, filters, scale.detach(), bias.detach(), *how, torch.float16))
        if images.dtype != torch.uint8:
            torch.library.opcheck(ops.sign_bits.default, (images, 2))
    tokens, matrix = normal(5, 20, device=device).requires_grad_(), normal(3, 20, device=device).requires_grad_()
    torch.library.opcheck(ops.binary_linear.default, (tokens, matrix, torch.float32))
    packed = _bits.weight_bits(matrix[:, :, None, None])
    torch.library.opcheck(ops.binary_linear.default, (tokens.detach(), packed, torch.int32))


@on_devices
def test_gradients_of_scale_and_bias_in_the_op(device):
    """The op takes them too, though the package leaves them to torch where gradients are wanted."""
    shapes = ((2, 6, 7, 5), (4, 3, 3, 2), (4,), (4,))
    numbers = [normal(*shape, device=device, seed=seed) for seed, shape in enumerate(shapes)]

    def gradients(function):
        tensors = [number.clone().requires_grad_() for number in numbers]
        y = function(*tensors)
        (y * normal(*y.shape, device=device, seed=2)).sum().backward()
        return [y.detach(), *(tensor.grad for tensor in tensors)]

    in_the_op = gradients(
        lambda *tensors: torch.ops.lowbit.binary_conv2d(*tensors, [3, 2], [2, 1], [1, 1, 2, 2], [1, 2], 2, 3, torch.float32)
    )
    after_it = gradients(lambda x, weight, scale, bias: lowbit.binary_conv2d(x, weight, (2, 1), (1, 2), (1, 2), 2, scale, bias))
    for mine, wanted in zip(in_the_op, after_it):
        assert torch.allclose(mine, wanted, rtol=1e-5, atol=1e-5)


@on_devices
def test_what_the_op_refuses(device):
    ops, x, weight = torch.ops.lowbit, normal(2, 6, 5, 5, device=device), normal(4, 6, 3, 3, device=device)
    bits, filters = lowbit.sign_bits(x), _bits.weight_bits(weight)

    def call(x=x, weight=weight, scale=None, bias=None, kernel=(3, 3), stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1,
             channels=6, dtype=torch.float32):  # fmt: skip
        return ops.binary_conv2d_no_grad(x, weight, scale, bias, kernel, stride, padding, dilation, groups, channels, dtype)

    assert torch.equal(call(), call(x=bits, weight=filters))
    for bad, text in (
        (lambda: call(x=x[0]), r"x has shape \[6, 5, 5\]; use \[images, channels, height, width\]"),
        (lambda: call(x=x.double()), "x has a dtype that lowbit does not take"),
        (lambda: call(x=x.int()), "x is int32; use fp32, fp16 or bf16"),
        (lambda: call(x=x[:, :5]), r"x has 5 channels but the weight takes 6 \(1 groups of 6\)"),
        (lambda: call(x=bits, channels=9), "x has 1 bytes for each pixel, but 1 groups of 9 channels take 2 each"),
        (lambda: call(weight=weight[0]), r"weight has shape \[6, 3, 3\]; use"),
        (lambda: call(channels=5), r"weight has shape \[4, 6, 3, 3\], but channels = 5"),
        (lambda: call(kernel=(3, 2)), "kernel = 3, 2"),
        (lambda: call(kernel=(3,)), "kernel has 1 numbers; use 2"),
        (lambda: call(padding=(1, 1)), "padding has 2 numbers; use 4"),
        (lambda: call(weight=filters, kernel=(3, 2)), "weight has 9 bytes for each output, but a kernel of 3 x 2"),
        (lambda: call(weight=filters, kernel=(9, 1)), "a kernel of 9 x 1 .* is larger than x"),
        (lambda: call(groups=3), "groups = 3 does not divide the 4 outputs of the weight"),
        (lambda: call(groups=2), r"x has 6 channels but the weight takes 12 \(2 groups of 6\)"),
        (lambda: call(stride=(0, 1)), "stride = 0, 1; use integers of at least 1"),
        (lambda: call(padding=(0, -1, 0, 0)), r"padding \(top, bottom\) = 0, -1; use"),
        (lambda: call(dilation=(3, 1)), "a kernel of 3 x 3 .dilation 3, 1. is larger than x"),
        (lambda: call(scale=normal(3, device=device)), "scale has 3 values, but the weight has 4 outputs"),
        (lambda: call(scale=normal(4, device=device).half()), "scale is fp16; use fp32"),
        (lambda: call(bias=normal(5, device=device)), "bias has 5 values, but the weight has 4 outputs"),
        (lambda: call(bias=normal(4, device=device), dtype=torch.int32), "it takes no scale and no bias"),
        (lambda: call(dtype=torch.int8), "y is int8; use fp32, fp16, bf16 or int32"),
        (lambda: ops.sign_bits(x, 4), "sign_bits: groups = 4 does not divide the 6 channels of x"),
        (lambda: ops.sign_bits(x, 0), "sign_bits: groups = 0 does not divide"),
        (lambda: ops.sign_bits(x[0], 1), r"sign_bits: x has shape \[6, 5, 5\]"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=text):
            bad()


@on_devices
def test_what_is_refused(device):
    x, weight = normal(2, 6, 5, 5, device=device), normal(4, 6, 3, 3, device=device)
    matrix = weight.flatten(1)
    for bad, text in (
        (lambda: lowbit.binary_conv2d(x[0, 0], weight), r"x has shape \[5, 5\]; use \[images"),
        (lambda: lowbit.binary_conv2d(x, matrix), r"weight has shape \[4, 54\]"),
        (lambda: lowbit.binary_conv2d(x[:, :5], weight), r"x has 5 channels but the weight takes 6 \(1 groups of 6\)"),
        (lambda: lowbit.binary_conv2d(x, weight, groups=3), "groups = 3 does not divide the 4 outputs"),
        (lambda: lowbit.binary_conv2d(x, weight, groups=2), "x has 6 channels but the weight takes 12"),
        (lambda: lowbit.binary_conv2d(x, weight, groups=0), "groups = 0 does not divide"),
        (lambda: lowbit.binary_conv2d(x, weight, stride=0), "stride = 0; use an integer of at least 1"),
        (lambda: lowbit.binary_conv2d(x, weight, stride=(1, 2, 3)), "stride = .1, 2, 3.; use"),
        (lambda: lowbit.binary_conv2d(x, weight, padding=-1), "padding = -1; use an integer of at least 0"),
        (lambda: lowbit.binary_conv2d(x, weight, padding="half"), 'padding = .half.; use "valid", "same"'),
        (lambda: lowbit.binary_conv2d(x, weight, padding="same", stride=2), "goes with stride 1"),
        (lambda: lowbit.binary_conv2d(x, weight, dilation=0), "dilation = 0; use"),
        (lambda: lowbit.binary_conv2d(x, weight, dilation=3), "a kernel of 3 x 3 .dilation .3, 3.. is larger than x, 5 x 5"),
        (lambda: lowbit.binary_conv2d(x.double(), weight), "x is torch.float64; use float32, float16 or bfloat16"),
        (lambda: lowbit.binary_conv2d(x, weight.int()), "weight is torch.int32; use"),
        (lambda: lowbit.binary_conv2d(x, weight, bias=normal(3, device=device)), r"bias has shape \[3\], but the weight has 4 outputs"),
        (lambda: lowbit.binary_conv2d(x, weight, scale=normal(4, 1, device=device)), r"scale has shape \[4, 1\]"),
        (lambda: lowbit.binary_conv2d(x, weight, scale="max"), "scale = 'max'; use None, \"mean\""),
        (lambda: lowbit.binary_conv2d(x, weight, out_dtype=torch.float64), "out_dtype = torch.float64; use"),
        (lambda: lowbit.binary_conv2d(x, weight, scale="mean", out_dtype=torch.int32), "without scale and bias"),
        (lambda: lowbit.binary_conv2d(lowbit.sign_bits(x, 2), weight), r"x has 2 bytes for each pixel but the weight takes 1 \(1 groups"),
        (lambda: lowbit.binary_conv2d(lowbit.sign_bits(x)[0, 0], weight), r"x has shape \[5, 1\]; use the bits of \[images"),
        (lambda: lowbit.binary_conv2d(lowbit.sign_bits(x), weight, dilation=3), "is larger than x, 5 x 5"),
        (lambda: lowbit.binary_conv2d(x, weight.byte()), "weight is torch.uint8; use float32, float16 or bfloat16"),
        (lambda: lowbit.binary_linear(matrix.byte(), matrix), "x is torch.uint8; use"),
        (lambda: lowbit.sign_bits(x, 4), "sign_bits: groups = 4 does not divide the 6 channels of x"),
        (lambda: lowbit.sign_bits(x, 0), "sign_bits: groups = 0 does not divide"),
        (lambda: lowbit.sign_bits(x.int()), "sign_bits: x is torch.int32; use"),
        (lambda: lowbit.sign_bits(x[0, 0]), r"sign_bits: x has shape \[5, 5\]; use \[images"),
        (lambda: lowbit.binary_linear(matrix[:, :53], matrix), r"x has shape \[4, 53\] but the weight takes \[..., 54\]"),
        (lambda: lowbit.binary_linear(matrix, weight), "weight has shape .* use a matrix"),
        (lambda: BinaryLinear(8, 8, scale="max"), "BinaryLinear: scale = 'max'; use \"mean\" or None"),
        (lambda: BinaryConv2d(8, 8, 0), "BinaryConv2d: kernel_size = 0; use"),
        (lambda: BinaryConv2d(8, 8, 3, padding="half"), "BinaryConv2d: padding = 'half'"),
        (lambda: BinaryConv2d.from_conv2d(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")), "padding_mode = 'reflect'"),
        (lambda: BinaryLinear(8, 8, device=device).quantize_weights()(x), "BinaryLinear: x has shape"),
        (lambda: BinaryConv2d(8, 8, 3, device=device).quantize_weights()(x), "BinaryConv2d: x has 6 channels but the weight takes 8"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
    with pytest.raises(TypeError, match="x is a list"):
        lowbit.binary_conv2d([1.0], weight)


@needs_cuda
def test_two_devices_are_refused():
    with pytest.raises(ValueError, match="x is on cpu but weight is on cuda:0; move one of them"):
        lowbit.binary_conv2d(normal(1, 6, 5, 5), normal(4, 6, 3, 3, device="cuda"))
