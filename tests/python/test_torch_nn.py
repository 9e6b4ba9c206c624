"""QuantizedLinear in every scheme, and quantize_ over models."""

import copy
import io

import pytest

from torch_cases import FLOATS, assert_same_planes, lowbit, needs_cuda, normal, on_devices, same_bits, torch

nn, QuantizedLinear = torch.nn, lowbit.nn.QuantizedLinear
SCHEMES = list(lowbit.SCHEMES)
# The relative error of a layer's output on normal numbers.
BOUNDS = {"w4a16": 0.15, "w8a16": 0.02, "w8a8": 0.03, "w4a8": 0.15, "w4a4": 0.4, "fp8": 0.08, "nf4": 0.15, "q4_0": 0.15, "w1a1": 1.0}


def linear(inputs=256, outputs=96, bias=True, dtype=torch.float32, device="cpu"):
    layer = nn.Linear(inputs, outputs, bias, dtype=dtype, device=device)
    with torch.no_grad():
        layer.weight.copy_(normal(outputs, inputs) / inputs**0.5)
        if bias:
            layer.bias.copy_(normal(outputs))
    return layer


def in_fp32(layer, x):
    """Not in bf16: torch's own product for that dies of an illegal instruction on some virtual machines with AMX."""
    bias = None if layer.bias is None else layer.bias.detach().float()
    return nn.functional.linear(x.float(), layer.weight.detach().float(), bias)


def relative_error(found, wanted):
    return float(torch.linalg.norm(found.double() - wanted.double()) / torch.linalg.norm(wanted.double()))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_schemes(device, scheme, dtype):
    for bias in (True, False):
        plain = linear(bias=bias, dtype=dtype, device=device)
        layer = QuantizedLinear.from_linear(plain, scheme)
        assert layer.is_quantized and isinstance(plain.weight, nn.Parameter)
        for lead in ((), (1,), (4, 7), (2, 1, 3), (0,)):
            x = normal(*lead, 256, dtype=dtype, device=device)
            y = layer(x)
            assert y.shape == (*lead, 96) and y.dtype == dtype
            if y.numel():
                assert relative_error(y.detach(), in_fp32(plain, x)) < BOUNDS[scheme]


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_a_layer_is_a_product(device, scheme):
    layer = QuantizedLinear.from_linear(linear(device=device), scheme)
    x, formats = normal(5, 256, device=device), lowbit.SCHEMES[scheme]
    wanted = lowbit.matmul(x, layer.weight.tensor, layer.bias, x_format=formats.activation_format)
    assert same_bits(layer(x), wanted)
    assert layer.weight.tensor.format == formats.weight_format
    assert layer.explain(x).startswith("chosen: ")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_a_gated_layer(device, scheme):
    plain, x = linear(device=device), normal(5, 256, device=device)
    first, second = in_fp32(plain, x).chunk(2, -1)
    layer = QuantizedLinear.from_linear(plain, scheme, gate="gelu_tanh")
    wanted = lowbit.matmul(
        x, layer.weight.tensor, layer.bias, "gelu_tanh", gate=True, x_format=lowbit.SCHEMES[scheme].activation_format
    )
    assert same_bits(layer(x), wanted) and layer(x).shape == (5, 48)
    assert "gate: " in layer.explain(x) and "gate=gelu_tanh" in repr(layer)
    made = QuantizedLinear(256, 96, scheme=scheme, device=device, gate="gelu_tanh")
    with torch.no_grad():
        made.weight.copy_(plain.weight)
        made.bias.copy_(plain.bias)
    assert torch.allclose(made(x), nn.functional.gelu(first, approximate="tanh") * second, rtol=1e-3, atol=1e-3)
    assert same_bits(made.quantize_weights()(x), wanted)
    made.load_state_dict(layer.state_dict())
    assert same_bits(made(x), wanted)


def test_gates_that_are_refused():
    with pytest.raises(ValueError, match="gate = 'tanh'; use none, relu"):
        QuantizedLinear.from_linear(linear(), gate="tanh")
    with pytest.raises(ValueError, match="out_features = 95, but a gate takes two halves"):
        QuantizedLinear.from_linear(linear(outputs=95), gate="silu")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_state_dict(device, scheme):
    layer = QuantizedLinear.from_linear(linear(device=device), scheme)
    x, state = normal(5, 256, device=device), layer.state_dict()
    assert {"weight.codes", "bias"} <= set(state) and all(isinstance(value, torch.Tensor) for value in state.values())
    assert "weight.packed" not in state
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    state = torch.load(file)
    for other in (
        QuantizedLinear(256, 96, scheme=scheme, device=device),  # still with plain numbers
        QuantizedLinear(256, 96, scheme=scheme, device=device).quantize_weights(),
    ):
        assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
        assert same_bits(other(x), layer(x))
    copied = copy.deepcopy(layer)
    assert same_bits(copied(x), layer(x))


def test_state_dict_that_does_not_fit():
    layer = QuantizedLinear.from_linear(linear(), "w4a16")
    state = layer.state_dict()
    other = QuantizedLinear(128, 96, scheme="w4a16").quantize_weights()
    with pytest.raises(RuntimeError, match="weight.codes is torch.uint8 .96, 128., but int4:g128 of .96, 128. takes"):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="Missing key.*weight.scales"):
        layer.load_state_dict({key: value for key, value in state.items() if key != "weight.scales"})
    with pytest.raises(RuntimeError, match="Unexpected key.*weight.zero_points"):
        layer.load_state_dict({**state, "weight.zero_points": state["weight.codes"]})
    assert not layer.load_state_dict({**state, "weight.extra": state["bias"]}, strict=False).missing_keys


@pytest.mark.parametrize("scheme", SCHEMES)
def test_safetensors(scheme, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Sequential(QuantizedLinear.from_linear(linear(), scheme))
    safetensors.save_file(model.state_dict(), str(tmp_path / "model.safetensors"))
    other = nn.Sequential(QuantizedLinear(256, 96, scheme=scheme))
    other.load_state_dict(safetensors.load_file(str(tmp_path / "model.safetensors")))
    x = normal(3, 256)
    assert same_bits(other(x), model(x))


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_conversions_leave_the_weight_alone(device, scheme):
    layer = QuantizedLinear.from_linear(linear(device=device), scheme)
    before = layer.weight.tensor.unpack()
    layer.to(torch.bfloat16)
    assert_same_planes(layer.weight.tensor, before)
    assert layer.bias.dtype == torch.bfloat16
    x = normal(2, 256, dtype=torch.bfloat16, device=device)
    assert layer(x).dtype == torch.bfloat16
    layer.float()
    assert_same_planes(layer.weight.tensor, before)


@needs_cuda
@pytest.mark.parametrize("scheme", SCHEMES)
def test_to_another_device(scheme):
    """There and back: the same codes; on the GPU the weight is held once, in the order that its kernels want."""
    layer = QuantizedLinear.from_linear(linear(), scheme)
    before, x = layer.weight.tensor, normal(4, 256)
    wanted, size = layer(x), before.nbytes
    layer.to("cuda")
    assert layer.weight.device.type == "cuda"
    assert sum(buffer.nbytes for buffer in layer.weight.buffers()) < 1.3 * size + 4096
    # Tokens that are rounded to q8_1 on the way are kept in fp16 there.
    assert relative_error(layer(x.cuda()).detach().cpu(), wanted.detach()) < (2**-11 if scheme == "q4_0" else 1e-5)
    assert_same_planes(layer.weight.tensor, before)
    state = layer.state_dict()
    layer.load_state_dict(state)
    layer.to("cpu")
    assert_same_planes(layer.weight.tensor, before)
    assert same_bits(layer(x), wanted)


def test_before_and_after_quantize_weights():
    torch.manual_seed(0)
    layer = QuantizedLinear(64, 32, scheme="w8a16")
    x = normal(3, 64)
    assert not layer.is_quantized and "not quantized yet" in repr(layer)
    before = layer(x)
    assert layer.quantize_weights() is layer and layer.quantize_weights().is_quantized
    assert relative_error(layer(x).detach(), before.detach()) < 0.02
    assert "int8:row" in repr(layer) and "QTensor" in repr(layer)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


@on_devices
def test_autocast(device):
    layer = QuantizedLinear.from_linear(linear(device=device), "w4a16")
    x = normal(3, 256, device=device)
    with torch.autocast(device, dtype=torch.bfloat16), torch.no_grad():
        y = layer(x)
    assert y.dtype == torch.bfloat16 and same_bits(y, layer(x.bfloat16()))


def test_schemes_of_other_kinds():
    assert QuantizedLinear.from_linear(linear(), "int4:g32").weight.tensor.format == "int4:g32"
    mine = lowbit.Scheme("mine", "uint4:g64:asym", "int8:row")
    assert "mine (uint4:g64:asym x int8:row)" in repr(QuantizedLinear.from_linear(linear(), mine))
    with pytest.raises(ValueError, match="use one of w4a16, "):
        QuantizedLinear.from_linear(linear(), "w3a3")


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_inputs_that_no_group_divides(device, scheme):
    plain = linear(inputs=200, device=device)
    if scheme == "q4_0":
        with pytest.raises(ValueError, match="do not divide K = 200; pad K to 224"):
            QuantizedLinear.from_linear(plain, scheme)
        return
    layer, x = QuantizedLinear.from_linear(plain, scheme), normal(3, 200, device=device)
    assert relative_error(layer(x).detach(), plain(x).detach()) < BOUNDS[scheme]


@on_devices
def test_gradients_flow_to_inputs_and_bias(device):
    plain = linear(device=device)
    layer = QuantizedLinear.from_linear(plain, "w8a16")
    x = normal(4, 256, device=device).requires_grad_()
    layer(x).sum().backward()
    wanted = layer.weight.tensor.dequantize().sum(0).expand(4, -1)
    assert relative_error(x.grad, wanted) < 0.02 and torch.allclose(layer.bias.grad, torch.full_like(layer.bias, 4.0))


@pytest.mark.parametrize("scheme", ["w4a16", "w8a8", "q4_0"])
@on_devices
def test_compile_a_model(device, scheme):
    torch._dynamo.reset()
    model = nn.Sequential(linear(256, 512, device=device), nn.SiLU(), linear(512, 256, device=device))
    lowbit.quantize_(model, scheme)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for lead in ((3,), (5,), (2, 4)):
            x = normal(*lead, 256, device=device)
            assert torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_export_a_model():
    model = nn.Sequential(linear(256, 64), nn.ReLU(), linear(64, 8))
    lowbit.quantize_(model, "w4a16")
    exported = torch.export.export(model, (normal(4, 256),), dynamic_shapes=({0: torch.export.Dim("tokens")},))
    x = normal(7, 256)
    assert same_bits(exported.module()(x), model(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 64)
        self.up, self.down = linear(64, 128), linear(128, 64)
        self.odd = linear(100, 8)
        self.same = self.up
        self.attention = nn.MultiheadAttention(64, 4)
        self.tied = nn.Linear(64, 50, bias=False)
        self.tied.weight = self.embed.weight
        self.lm_head = linear(64, 50, bias=False)

    def forward(self, tokens):
        return self.lm_head(self.down(self.same(self.embed(tokens))))


def test_quantize_model():
    model, tokens = Model(), torch.arange(10)
    before = model(tokens)
    report = lowbit.quantize_(model, "q4_0", exclude="lm_head")
    assert relative_error(model(tokens).detach(), before.detach()) < 0.3
    assert isinstance(model.up, QuantizedLinear) and model.same is model.up and isinstance(model.lm_head, nn.Linear)
    assert [layer.name for layer in report.quantized] == ["up", "down"]
    reasons = {layer.name: layer.reason for layer in report.left_alone}
    assert "pad K to 128" in reasons["odd"] and reasons["lm_head"] == "excluded" and "embed" in reasons["tied"]
    assert "NonDynamicallyQuantizableLinear" in reasons["attention.out_proj"]
    up = report["up"]
    assert up.shape == (128, 64) and up.scheme == "q4_0" and up.format == "q4_0" and up.kernel.startswith("cpu_")
    assert 0.01 < up.error < 0.15 and up.bytes_before == 4 * 128 * 64 and up.bytes_after == 128 * 64 // 32 * 18


def test_report_is_a_table():
    lines = str(lowbit.quantize_(Model(), "q4_0", exclude="lm_head")).splitlines()
    assert lines[0].split() == ["layer", "shape", "format", "kernel", "error"]
    assert len(lines) == 1 + 6 + 1
    assert any(line.startswith("odd ") and "left alone: q4_0: stores blocks of 32" in line for line in lines)
    assert lines[-1].startswith("2 of 6 linear layers quantized, 0.1 MB -> 0.0 MB")


def test_include_and_exclude():
    def quantized(**choice):
        return [layer.name for layer in lowbit.quantize_(Model(), "w8a16", **choice).quantized]

    assert quantized(include="up") == ["up"]
    assert quantized(include=["^up$", "down"], exclude="down") == ["up"]
    assert quantized(include="nothing") == []
    assert quantized(exclude=["odd", "lm_head"]) == ["up", "down"]
    with pytest.raises(ValueError, match="no regular expression"):
        quantized(include="(")
    with pytest.raises(ValueError, match="from_linear"):
        lowbit.quantize_(linear(), "w8a16")
    assert str(lowbit.quantize_(nn.Sequential(nn.ReLU()), "w8a16")) == "no linear layers"
