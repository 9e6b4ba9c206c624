"""The ops as torch sees them: opcheck, torch.compile, gradients, devices, streams and CUDA graphs."""

import threading

import pytest

from torch_cases import assert_same_planes, lowbit, needs_cuda, normal, on_devices, same_bits, torch

functional, opcheck, OPS = torch.nn.functional, torch.library.opcheck, torch.ops.lowbit
CHECKED = ["int4:g32", "uint4:g32:asym", "int8:row", "fp8_e4m3:row", "nvfp4", "mxfp8", "q4_0"]


def as_bytes(planes):
    """opcheck compares its inputs with arithmetic that torch has not for fp8; the ops take such planes as bytes too."""
    return tuple(None if plane is None else plane.view(torch.uint8) if plane.element_size() == 1 else plane for plane in planes)


@pytest.mark.parametrize("format", CHECKED)
@on_devices
def test_opcheck(device, format):
    x = normal(3, 5, 96 if "q" not in format else 128, device=device)
    k = x.shape[-1]
    opcheck(OPS.quantize.default, (x, format))
    q = lowbit.quantize(normal(16, k, device=device), format)
    planes = as_bytes(q.planes())
    opcheck(OPS.dequantize.default, (*planes, format, k, torch.bfloat16))
    opcheck(OPS.pack.default, (*planes, format, k))
    layout = lowbit._format.pack_layout(format, q.device)
    opcheck(OPS.unpack.default, (OPS.pack(*planes, format, k), format, 16, k, layout))
    codes, *rest = planes
    bias = normal(16, device=device)
    named = dict(weight_format=format, columns=k, activation="silu", dtype=torch.bfloat16)
    for op in (OPS.matmul.default, OPS.matmul_no_grad.default):
        opcheck(op, (x, codes, bias, None, None, None, *rest), named)
        opcheck(op, (x, OPS.pack(*planes, format, k)), dict(weight_format=format, weight_layout=layout, rows=16, columns=k))
        opcheck(op, (codes, codes, None, *rest, *rest), dict(x_format=format, weight_format=format, columns=k))
        opcheck(op, (x, codes, bias, None, None, None, *rest), dict(named, gate=True))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@on_devices
def test_compile_fullgraph(device, backend):
    weight = lowbit.quantize(normal(64, 256, device=device), "int4:g128").pack()
    bias = normal(64, device=device)

    def through(x):
        y = lowbit.matmul(x * 2, weight, bias, "gelu")
        q = lowbit.quantize(y, "int8:row")
        return lowbit.matmul(q, lowbit.quantize(y, "int8:row")) + 1, q.dequantize()

    torch._dynamo.reset()
    compiled = torch.compile(through, fullgraph=True, backend=backend)
    for rows in (2, 5, 9) if backend == "aot_eager" else (2,):  # the second makes sizes symbols
        x = normal(rows, 256, device=device)
        for found, wanted in zip(compiled(x), through(x)):
            assert found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)


@on_devices
def test_compile_takes_and_gives_qtensors(device):
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def requantized(q):
        return lowbit.quantize(q.dequantize() * 2, "int8:row")

    q = lowbit.quantize(normal(4, 64, device=device), "int4:g32")
    assert_same_planes(requantized(q), lowbit.quantize(q.dequantize() * 2, "int8:row"))


ACTIVATIONS = {
    "none": lambda y: y,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    "silu": functional.silu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@on_devices
def test_gradients(device, activation, compiled):
    w = lowbit.quantize(normal(24, 96, device=device), "int4:g32").pack()
    row_scale, column_scale = normal(6, device=device).abs(), normal(24, device=device).abs()

    def product(x, bias):
        return lowbit.matmul(x, w, bias, activation, scale=0.5, row_scale=row_scale, column_scale=column_scale)

    def wanted(x, bias):
        y = x @ w.dequantize().t() * 0.5 * row_scale.reshape(2, 3, 1) * column_scale + bias
        return ACTIVATIONS[activation](y)

    if compiled:
        torch._dynamo.reset()
        product = torch.compile(product, fullgraph=True, backend="aot_eager")
    results = []
    for function in (product, wanted):
        x = normal(2, 3, 96, device=device).requires_grad_()
        bias = normal(24, device=device).requires_grad_()
        y = function(x, bias)
        y.backward(normal(*y.shape, device=device, seed=3))
        results.append((y, x.grad, bias.grad))
    for found, right in zip(*results):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@on_devices
def test_gradients_through_a_gate(device, activation, compiled):
    w = lowbit.quantize(normal(48, 96, device=device), "int4:g32").pack()
    column_scale = normal(48, device=device).abs()

    def product(x, bias):
        return lowbit.matmul(x, w, bias, activation, gate=True, scale=0.2, column_scale=column_scale)

    def wanted(x, bias):
        first, second = (x @ w.dequantize().t() * 0.2 * column_scale + bias).chunk(2, -1)
        return ACTIVATIONS[activation](first) * second

    if compiled:
        torch._dynamo.reset()
        product = torch.compile(product, fullgraph=True, backend="aot_eager")
    results = []
    for function in (product, wanted):
        x = normal(2, 3, 96, device=device).requires_grad_()
        bias = normal(48, device=device).requires_grad_()
        y = function(x, bias)
        y.backward(normal(*y.shape, device=device, seed=3))
        results.append((y, x.grad, bias.grad))
    for found, right in zip(*results):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)


def test_gradient_of_a_plain_weight_through_a_gate():
    results = []
    for gated in (False, True):
        x, w = normal(4, 32).requires_grad_(), normal(8, 32, seed=1).requires_grad_()
        if gated:
            y = lowbit.matmul(x, w, gate=True)
        else:
            first, second = functional.linear(x, w).chunk(2, -1)
            y = functional.silu(first) * second
        y.square().sum().backward()
        results.append((x.grad, w.grad))
    for found, wanted in zip(*results):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_gradient_of_a_plain_weight():
    results = []
    for function in (lowbit.matmul, functional.linear):
        x, w = normal(4, 32).requires_grad_(), normal(8, 32).requires_grad_()
        function(x, w).square().sum().backward()
        results.append((x.grad, w.grad))
    for found, wanted in zip(*results):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_threads_at_a_time():
    """One context for all threads of the process: calls that meet do not disturb each other."""
    w = lowbit.quantize(normal(128, 512), "int4:g128")
    inputs = [normal(3 + i, 512) for i in range(4)]
    wanted = [lowbit.matmul(x, w) for x in inputs]
    wrong = []

    def work(i):
        for _ in range(20):
            if not same_bits(lowbit.matmul(inputs[i], w), wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _in_a_fork(queue, x, w):
    queue.put(lowbit.matmul(x, w).sum().item())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork():
    """The threads of the parent's context are not there in a child."""
    if torch.cuda.is_initialized():
        pytest.skip("a process that has used CUDA cannot fork")
    x, w = normal(64, 512), lowbit.quantize(normal(256, 512), "int8:row")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    wanted = lowbit.matmul(x, w).sum().item()
    context = torch.multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_a_fork, args=(queue, x, w))
    child.start()
    child.join(60)
    torch.set_num_threads(threads)
    assert child.exitcode == 0 and queue.get() == pytest.approx(wanted)


@needs_cuda
def test_mixed_devices_are_refused():
    x, w = normal(4, 64), lowbit.quantize(normal(8, 64), "int4:g32")
    for bad in (
        lambda: lowbit.matmul(x.cuda(), w),
        lambda: lowbit.matmul(x, w.cuda()),
        lambda: lowbit.matmul(x, w.cuda().pack()),
        lambda: lowbit.matmul(x.cuda(), w.cuda(), bias=normal(8)),
        lambda: lowbit.matmul(x, w, bias=normal(8).cuda()),
        lambda: lowbit.QTensor(w.codes.cuda(), w.scales, format=w.format, shape=w.shape),
        lambda: lowbit.quantize(x.cuda(), "int8:row", scales=torch.ones(4, 1)),
    ):
        with pytest.raises(ValueError, match="is on (cpu|cuda:0).* but .* is on (cpu|cuda:0).*; move one of them"):
            bad()


def test_other_devices_are_refused():
    with pytest.raises((ValueError, NotImplementedError, RuntimeError)):
        torch.ops.lowbit.explain(torch.empty(2, 32, device="meta"), torch.empty(4, 32, device="meta"))


@needs_cuda
@pytest.mark.parametrize("format, x_format", [("int4:g128", None), ("int8:row", "int8:row"), ("q4_0", "q8_1"), ("fp8_e4m3:row", None)])
def test_two_streams(format, x_format):
    """Each call runs on the stream that is current: what waits on one stream does not hold up the other, and each sees its own inputs."""
    w = lowbit.quantize(normal(512, 1024, device="cuda"), format).pack()
    inputs = [normal(32, 1024, dtype=torch.bfloat16, device="cuda", seed=i) for i in range(2)]
    wanted = [lowbit.matmul(x, w, x_format=x_format) for x in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(10):
        results = []
        for x, stream in zip(inputs, streams):
            with torch.cuda.stream(stream):
                late = torch.zeros_like(x)
                torch.cuda._sleep(1_000_000)
                late.copy_(x)  # only work on this stream, after this copy, sees the numbers
                results.append(lowbit.matmul(late, w, x_format=x_format))
        torch.cuda.synchronize()
        assert all(same_bits(found, right) for found, right in zip(results, wanted))


@needs_cuda
@pytest.mark.parametrize("scheme", lowbit.SCHEMES)
def test_graph_capture(scheme):
    layer = lowbit.nn.QuantizedLinear(512, 256, scheme=scheme, device="cuda", dtype=torch.bfloat16).quantize_weights()
    x = normal(8, 512, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            layer(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
            q = lowbit.quantize(y, "int8:row")
            back = q.dequantize()
        for seed in (1, 2):
            x.copy_(normal(8, 512, dtype=torch.bfloat16, device="cuda", seed=seed))
            graph.replay()
            assert same_bits(y, layer(x))
            assert_same_planes(q, lowbit.quantize(y, "int8:row"))
            assert same_bits(back, q.dequantize())


def _is_dependent():
    """What holds for this thread, which a swap back leaves as it was."""
    held = lowbit._launch._swap(0)
    lowbit._launch._swap(held)
    return bool(held)


def test_dependent_launch_nests_and_ends():
    assert not _is_dependent()
    with lowbit.dependent_launch():
        assert _is_dependent()
        with lowbit.dependent_launch(False):
            assert not _is_dependent()
            with lowbit.dependent_launch(enabled=True):
                assert _is_dependent()
            assert not _is_dependent()
        assert _is_dependent()
        seen = []
        other = threading.Thread(target=lambda: seen.append(_is_dependent()))
        other.start()
        other.join()
        assert seen == [False], "it holds for the thread that asked"
    assert not _is_dependent()
    with pytest.raises(KeyError), lowbit.dependent_launch():
        raise KeyError("an exception ends it too")
    assert not _is_dependent()


@pytest.mark.parametrize("format, x_format", [("int4:g128", None), ("int8:row", "int8:row"), ("q4_0", "q8_1")])
@on_devices
def test_dependent_launch_changes_no_bit(device, format, x_format):
    """Products that each take the result of the one before; and inside a compiled function."""
    weights = [lowbit.quantize(normal(512, 512, device=device, seed=i) / 512**0.5, format).pack() for i in range(4)]

    def chain(x):
        for w in weights * 4:
            x = lowbit.matmul(x, w, x_format=x_format)
        return x

    torch._dynamo.reset()
    compiled = torch.compile(chain, fullgraph=True, backend="aot_eager")
    for tokens in (1, 5, 16):
        x = normal(tokens, 512, dtype=torch.bfloat16, device=device)
        wanted = chain(x)
        if device == "cuda":
            torch.cuda.synchronize()  # the weights are ready
        with lowbit.dependent_launch():
            assert same_bits(chain(x), wanted)
            assert same_bits(compiled(x), wanted)
        assert same_bits(chain(x), wanted)


@needs_cuda
@pytest.mark.parametrize("scheme", lowbit.SCHEMES)
@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_dependent_launch_in_a_graph(tokens, scheme):
    """A graph keeps what held when it was captured: its replays, with other numbers, give the bits of a plain chain."""
    layers = [lowbit.nn.QuantizedLinear(512, 512, scheme=scheme, device="cuda", dtype=torch.bfloat16).quantize_weights() for _ in range(4)]
    x = normal(tokens, 512, dtype=torch.bfloat16, device="cuda")

    def chain():
        y = x
        for layer in layers * 4:
            y = torch.tanh(layer(layer(y)))  # next to kernels of lowbit's own, and of torch's
        return y

    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with lowbit.dependent_launch(), torch.cuda.graph(graph):
            y = chain()
        for seed in range(5):
            x.copy_(normal(tokens, 512, dtype=torch.bfloat16, device="cuda", seed=seed))
            graph.replay()
            assert same_bits(y, chain())


@needs_cuda
def test_every_device():
    """The device of the tensors counts, not the current one."""
    for index in range(torch.cuda.device_count()):
        w = lowbit.quantize(normal(64, 256), "int4:g128").to(index).pack()
        x = normal(4, 256).to(index)
        assert lowbit.matmul(x, w).device == x.device
        assert_same_planes(lowbit.quantize(x, "int8:row"), lowbit.quantize(x.cpu(), "int8:row"))
