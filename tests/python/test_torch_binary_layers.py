"""Binary layers: with numbers and with bits, training, state_dict, conversions, torch.compile, export, CUDA graphs."""

import copy
import io

import pytest

from torch_cases import FLOATS, exact_conv2d, lowbit, needs_cuda, normal, on_devices, same_bits, torch

nn, functional = torch.nn, torch.nn.functional
BinaryLinear, BinaryConv2d = lowbit.nn.BinaryLinear, lowbit.nn.BinaryConv2d


def layers(device="cpu", **options):
    """A layer of each kind, and an input."""
    torch.manual_seed(0)
    return [
        (BinaryLinear(200, 24, device=device, **options), normal(5, 200, device=device)),
        (BinaryLinear(128, 24, device=device, bias=False, **options), normal(2, 3, 128, device=device)),
        (BinaryConv2d(16, 24, 3, padding=1, device=device, **options), normal(2, 16, 7, 6, device=device)),
        (BinaryConv2d(6, 4, (3, 2), 2, (1, 0), 2, 2, False, device=device, **options), normal(2, 6, 9, 8, device=device)),
        (BinaryConv2d(6, 4, 4, padding="same", device=device, **options), normal(6, 9, 8, device=device)),
    ]


def functional_form(layer, x):
    if isinstance(layer, BinaryLinear):
        return lowbit.binary_linear(x, layer.weight, layer.scale, layer.bias)
    return lowbit.binary_conv2d(x, layer.weight, layer.stride, layer.padding, layer.dilation, layer.groups, layer.scale, layer.bias)


@on_devices
def test_a_network_learns(device):
    torch.manual_seed(0)
    x = torch.randn(64, 8, 6, 6, device=device)
    labels = (x[:, 0].mean((1, 2)) > 0).long()
    model = nn.Sequential(BinaryConv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Flatten(), BinaryLinear(32 * 36, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(60):
        loss = functional.cross_entropy(model(x) / 8, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    model.eval()
    before = model(x)
    for module in (model[0], model[3]):
        module.quantize_weights()
    assert same_bits(model(x), before)


@pytest.mark.parametrize("scale", ["mean", None])
@on_devices
def test_layers_with_numbers_and_with_bits(device, scale):
    for layer, x in layers(device, scale=scale):
        before = layer(x)
        assert not layer.is_quantized and "not quantized yet" in repr(layer) and same_bits(before, functional_form(layer, x))
        with pytest.raises(ValueError, match="call quantize_weights"):
            _ = layer.quantized_weight
        assert layer.quantize_weights() is layer and layer.quantize_weights().is_quantized
        assert same_bits(layer(x), before)
        assert layer.quantized_weight.format == "int1:row" and "not quantized yet" not in repr(layer)
        assert [name for name, _ in layer.named_parameters()] == (["bias"] if layer.bias is not None else [])
        for dtype in FLOATS:
            assert layer(x.to(dtype)).dtype == dtype
        assert layer(x[:0] if x.dim() != 3 else x[None][:0]).shape[0] == 0


@pytest.mark.parametrize("scale", ["mean", None])
@on_devices
def test_bits_are_those_of_the_format(device, scale):
    layer = BinaryLinear(200, 24, scale=scale, device=device)
    weight = layer.weight.detach()
    wanted = weight.sign() * (weight.abs().mean(1, keepdim=True, dtype=torch.float64).float() if scale else 1)
    assert same_bits(layer.quantize_weights().quantized_weight.dequantize(), wanted)
    assert layer.quantized_weight.nbytes == 24 * (25 + 4)
    layer = BinaryConv2d(16, 8, 3, scale=scale, device=device)
    matrix = layer.weight.detach().permute(0, 2, 3, 1).flatten(1)
    codes = lowbit.quantize(matrix, "int1:row").codes
    assert same_bits(layer.quantize_weights().quantized_weight.codes, codes)


@on_devices
def test_gradients_through_bits(device):
    """To x and bias, as before the numbers were given up."""

    def gradients(layer, x):
        inputs = x.clone().requires_grad_()
        y = layer(inputs)
        (y * normal(*y.shape, device=device, seed=3)).sum().backward()
        bias = None if layer.bias is None else layer.bias.grad.clone()
        layer.zero_grad()
        return inputs.grad, bias

    for layer, x in layers(device):
        before = gradients(layer, x)
        for mine, wanted in zip(gradients(layer.quantize_weights(), x), before):
            assert (mine is None and wanted is None) or torch.allclose(mine, wanted, rtol=1e-4, atol=1e-4)


@on_devices
def test_state_dict(device):
    for (layer, x), (plain, _), (quantized, _) in zip(layers(device), layers(device), layers(device)):
        with torch.no_grad():
            layer.weight.copy_(normal(*layer.weight.shape, seed=4))
        latent = layer.state_dict()
        assert "weight" in latent and str(plain.load_state_dict(latent)) == "<All keys matched successfully>"
        assert same_bits(plain(x), layer(x))
        state = layer.quantize_weights().state_dict()
        assert {"weight.codes", "weight.scales"} <= set(state) and "weight" not in state
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file)
        for other in (plain, quantized.quantize_weights()):
            with torch.no_grad():
                assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
            assert other.is_quantized and same_bits(other(x), layer(x))
        assert same_bits(copy.deepcopy(layer)(x), layer(x))


def test_state_dict_that_does_not_fit():
    layer = BinaryConv2d(16, 8, 3).quantize_weights()
    with pytest.raises(RuntimeError, match="weight.codes is torch.uint8 .8, 18., but int1:row of .8, 400. takes torch.uint8 .8, 50."):
        BinaryConv2d(16, 8, 5).load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match="Missing key.*weight.codes"):
        layer.load_state_dict(BinaryConv2d(16, 8, 3).state_dict())


def test_conversions_leave_the_bits_alone():
    for layer, x in layers():
        state = {name: value.clone() for name, value in layer.quantize_weights().state_dict().items() if name.startswith("weight")}
        layer.to(torch.bfloat16)
        assert all(same_bits(layer.state_dict()[name], value) for name, value in state.items())
        assert layer(x.bfloat16()).dtype == torch.bfloat16


@needs_cuda
def test_to_another_device():
    for layer, x in layers():
        wanted = layer.quantize_weights()(x)
        assert same_bits(layer.to("cuda")(x.cuda()), wanted)
        assert same_bits(layer.to("cpu")(x), wanted)


@on_devices
def test_from_layers_of_torch(device):
    linear, x = nn.Linear(40, 6, device=device).eval(), normal(3, 40, device=device)
    layer = BinaryLinear.from_linear(linear)
    assert layer.weight is linear.weight and layer.bias is linear.bias and not layer.training
    assert same_bits(layer(x), lowbit.binary_linear(x, linear.weight, "mean", linear.bias))
    layer.quantize_weights()
    assert isinstance(linear.weight, nn.Parameter)
    for options in ({"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2, "bias": False}, {"groups": 4}):
        conv, x = nn.Conv2d(8, 12, 3, device=device, **options), normal(2, 8, 9, 7, device=device)
        layer = BinaryConv2d.from_conv2d(conv, scale=None)
        wanted = exact_conv2d(x, conv.weight, conv.stride, conv.padding, conv.dilation, conv.groups).float().to(device)
        if conv.bias is not None:
            wanted = wanted + conv.bias.detach().reshape(-1, 1, 1)
        assert same_bits(layer(x), wanted) and same_bits(layer.quantize_weights()(x), wanted)


def test_repr():
    assert repr(BinaryLinear(40, 6, scale=None)) == "BinaryLinear(in_features=40, out_features=6, bias=True, scale=None, not quantized yet)"
    text = repr(BinaryConv2d(16, 8, 3, 2, 1, bias=False).quantize_weights())
    assert "16, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1), groups=1, bias=False, scale=mean" in text
    assert "QTensor(int1:row, 8 x 144" in text


@on_devices
def test_autocast(device):
    """The result has autocast's type; x keeps its own, in which a small number has a sign."""
    for layer, x in layers(device):
        x = x * 1e-30
        with torch.no_grad():
            wanted = layer(x)
            for held in (layer, layer.quantize_weights()):
                with torch.autocast(device, dtype=torch.bfloat16):
                    assert same_bits(held(x), wanted.bfloat16())


@on_devices
def test_compile(device):
    for quantized in (False, True):
        torch._dynamo.reset()
        for layer, x in layers(device):
            if quantized:
                layer.quantize_weights()
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            for inputs in (x, x.flip(0)) if x.dim() == 3 else (x, torch.cat((x, x.flip(0))), x[:1]):
                inputs = inputs.clone().requires_grad_()
                y = compiled(inputs)
                assert same_bits(y, layer(inputs))
                (grad,) = torch.autograd.grad(y.sum(), inputs)
                (wanted,) = torch.autograd.grad(layer(inputs).sum(), inputs)
                assert torch.allclose(grad, wanted, rtol=1e-4, atol=1e-4)


def test_export():
    model = nn.Sequential(BinaryConv2d(16, 24, 3, padding=1), nn.Hardtanh(), nn.Flatten(), BinaryLinear(24 * 6 * 5, 10).quantize_weights())
    exported = torch.export.export(model, (normal(4, 16, 6, 5),), dynamic_shapes=({0: torch.export.Dim("images")},))
    x = normal(7, 16, 6, 5)
    assert same_bits(exported.module()(x), model(x))


@on_devices
def test_layers_of_bits(device):
    torch._dynamo.reset()
    for layer, x in layers(device):
        if isinstance(layer, BinaryLinear):
            with pytest.raises(ValueError, match="x is torch.uint8; use float32"):
                layer(torch.zeros(3, layer.in_features, dtype=torch.uint8, device=device))
            continue
        wanted, bits = layer(x), lowbit.sign_bits(x, layer.groups)
        assert same_bits(layer(bits), wanted)
        with torch.no_grad():
            assert same_bits(layer(bits), wanted)
            with torch.autocast(device, dtype=torch.bfloat16):
                assert same_bits(layer(bits), wanted.bfloat16())
        layer.quantize_weights()
        assert same_bits(layer(bits), wanted)
        if x.dim() == 4:
            assert same_bits(layer(bits[:0]), wanted[:0])
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert same_bits(compiled(bits), wanted)


@needs_cuda
def test_cuda_graph():
    for layer, x in layers("cuda"):
        layer.quantize_weights()
        with torch.no_grad():
            layer(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = layer(x)
            x.copy_(x.flip(0))
            graph.replay()
            assert same_bits(y, layer(x))
