"""lowbit.quantize and QTensor, on every device: over formats, shapes and types."""

import copy
import os
import pickle
import subprocess

import pytest

from torch_cases import (
    FLOATS, FORMATS, GGML, GROUPED, ROOT, assert_same_planes, error_bound, lowbit, normal, on_devices, same_bits, torch,
)  # fmt: skip

import lowbit_c

PROGRAM = ROOT / "build" / "release" / "tools" / "lowbit"
SHAPES = [(4, 256), (2, 3, 512), (256,), (130, 1280)]
RAGGED = [(3, 33), (5, 127), (2, 2, 200), (1, 1), (7, 129)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@on_devices
def test_there_and_back(device, format, dtype):
    for shape in SHAPES:
        x = normal(*shape, dtype=dtype, device=device)
        q = lowbit.quantize(x, format)
        back = q.dequantize()
        assert q.shape == shape and q.device.type == device and q.dtype == dtype
        assert back.shape == shape and back.dtype == dtype and back.device == x.device
        error = torch.linalg.norm(back.double() - x.double()) / torch.linalg.norm(x.double())
        assert error <= error_bound(format), f"{shape}: {error}"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@on_devices
def test_planes_are_those_of_the_c_library(device, format, dtype):
    """To the bit, on every device: the CPU library called without torch."""
    for shape in SHAPES + ([] if format in GGML else RAGGED):
        x = normal(*shape, dtype=dtype, device=device)
        q = lowbit.quantize(x, format)
        planes = lowbit_c.quantize(x.cpu().reshape(-1, shape[-1]).float().numpy(), format)
        for found, wanted in ((q.codes, planes["codes"]), (q.scales, planes["scales"]), (q.zeros, planes["zero_points"])):
            assert (found is None) == (wanted is None or wanted.size == 0)
            if found is not None:
                assert found.cpu().contiguous().view(torch.uint8).numpy().tobytes() == wanted.tobytes(), (shape, format)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@on_devices
def test_int8_rows_by_the_formula(device, dtype):
    x = normal(37, 300, dtype=dtype)
    q = lowbit.quantize(x.to(device), "int8:row").cpu()  # compared on the CPU: torch on CUDA divides by multiplying with 1/127
    scales = x.float().abs().amax(1, keepdim=True) / 127
    codes = (x.float() / scales).round().clamp(-128, 127).to(torch.int8)
    assert same_bits(q.scales, scales) and same_bits(q.codes, codes)
    assert torch.equal(q.dequantize(torch.float32), codes.float() * scales)


@pytest.mark.parametrize("format", GROUPED)
@on_devices
def test_ragged_rows(device, format):
    for shape in RAGGED:
        x = normal(*shape, device=device)
        q = lowbit.quantize(x, format)
        assert q.dequantize().shape == shape
        assert_same_planes(q, lowbit.quantize(x.cpu(), format))


@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "q4_0", "nvfp4"])
@on_devices
def test_any_strides(device, format):
    whole = normal(6, 10, 256, device=device)
    for x in (whole[:, ::2], whole.transpose(0, 1), whole[..., 64:128], normal(256, 8, device=device).t(), whole[:1].expand(3, -1, -1)):
        assert_same_planes(lowbit.quantize(x, format), lowbit.quantize(x.contiguous(), format))


@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "int8:tensor", "uint4:g32:asym", "q4_0", "nvfp4"])
@on_devices
def test_nothing_to_do(device, format):
    for shape in ((0, 256), (3, 0), (2, 0, 256), (0,)):
        q = lowbit.quantize(normal(*shape, device=device), format)
        assert q.dequantize().shape == shape and "QTensor(" in repr(q)


@pytest.mark.parametrize(
    "format", ["int8:row", "int8:tensor", "int4:g32", "uint8:row:asym", "uint4:g32:asym", "fp8_e4m3:row", "nvfp4", "mxfp8"]
)
@on_devices
def test_static_scales(device, format):
    """With the scales that it would have found, the codes are the same; with others, the scales are taken as they are."""
    x = normal(9, 128, device=device)
    q = lowbit.quantize(x, format)
    assert_same_planes(lowbit.quantize(x, format, scales=q.scales, zeros=q.zeros, tensor_scale=q.tensor_scale), q)
    other = lowbit.quantize(3 * x, format, scales=q.scales, zeros=q.zeros, tensor_scale=q.tensor_scale)
    assert same_bits(other.scales, q.scales) and not same_bits(other.codes, q.codes)


@on_devices
def test_what_is_refused(device):
    x = normal(4, 100, device=device)
    q = lowbit.quantize(x, "int4:g32")
    for bad, text in (
        (lambda: lowbit.quantize(x, "q4_0"), "pad K to 128"),
        (lambda: lowbit.quantize(x.double(), "int8:row"), "dtype"),
        (lambda: lowbit.quantize(x, "int8:row", scales=torch.ones(4, 2, device=device)), "scales has 32 bytes"),
        (lambda: lowbit.quantize(x, "int8:row", scales=torch.ones(4, 1, dtype=torch.float16, device=device)), "scales has"),
        (lambda: lowbit.quantize(x, "q8_0", scales=torch.ones(4, 1, device=device)), "K"),
        (lambda: lowbit.QTensor(q.codes, None, format="int4:g32", shape=(4, 100)), "scales is missing"),
        (lambda: lowbit.QTensor(q.codes, q.scales, format="int4:g32", shape=(5, 100)), "codes is"),
        (lambda: q.dequantize(torch.float64), "dtype"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()
    with pytest.raises(TypeError):
        lowbit.quantize(x, 4)
    with pytest.raises(TypeError):
        q.to(torch.float16)


def test_repr_says_what_it_is():
    q = lowbit.quantize(torch.zeros(4096, 14336), "int4:g128")
    assert repr(q) == "QTensor(int4:g128, 4096 x 14336, 30.3 MB, cpu)"
    assert q.nbytes == 4096 * (14336 // 2 + 2 * 112)


@pytest.mark.parametrize("format", ["int4:g128", "uint4:g32:asym", "int8:row", "fp8_e4m3:row", "nvfp4", "mxfp8", "q4_0", "q6_k"])
@on_devices
def test_pack_and_unpack(device, format):
    q = lowbit.quantize(normal(67, 512, device=device), format)
    packed = lowbit.pack(q)
    assert packed.shape == q.shape and packed.format == format and packed.pack() is packed
    assert_same_planes(packed.unpack(), q)
    assert_same_planes(packed, q)
    assert same_bits(packed.dequantize(), q.dequantize())
    assert_same_planes(packed.to("cpu"), q)
    assert packed.to("cpu").is_packed is False


@pytest.mark.parametrize("format", ["int4:g128", "uint4:g32:asym", "int8:row", "nvfp4", "q4_0"])
@on_devices
def test_op_pack_on_every_device(device, format):
    """The op itself, also where QTensor.pack has nothing to gain."""
    q = lowbit.quantize(normal(19, 256, device=device), format)
    packed = torch.ops.lowbit.pack(*q.planes(), format, 256)
    layout = lowbit._format.pack_layout(format, q.device)
    back = torch.ops.lowbit.unpack(packed, format, 19, 256, layout)
    for found, wanted in zip(back, q.planes()):
        assert same_bits(found, wanted) or (wanted is None and found.numel() == 0)


@on_devices
def test_copies(device):
    q = lowbit.quantize(normal(8, 64, device=device), "uint4:g32:asym")
    assert_same_planes(copy.deepcopy(q), q)
    assert_same_planes(pickle.loads(pickle.dumps(q)), q)
    assert_same_planes(q.to("cpu").to(device), q)
    assert q.cpu().device.type == "cpu"


@pytest.mark.parametrize("format", ["int4:g128", "uint4:g32:asym", "int8:row", "fp8_e4m3:row", "nvfp4", "mxfp4", "q4_0"])
@on_devices
def test_safetensors(device, format, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    q = lowbit.quantize(normal(5, 256, dtype=torch.bfloat16, device=device), format)
    try:
        safetensors.save_file(q.state_dict("w."), str(tmp_path / "planes.safetensors"))
    except (KeyError, ValueError) as error:
        pytest.skip(f"this safetensors cannot store the planes of {format}: {error}")
    planes = safetensors.load_file(str(tmp_path / "planes.safetensors"))
    assert_same_planes(lowbit.QTensor.from_state_dict(planes, format, q.shape, prefix="w."), q)

    bias = normal(7, device=device)
    lowbit.save_file({"w": q, "bias": bias}, tmp_path / "both.safetensors", {"note": "kept"})
    back = lowbit.load_file(tmp_path / "both.safetensors", device)
    assert_same_planes(back["w"], q)
    assert back["w"].dtype == torch.bfloat16 and back["w"].shape == q.shape and same_bits(back["bias"], bias)


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"the program was not built: {PROGRAM} does not exist")
@pytest.mark.parametrize("format", ["int4:g128", "uint4:g32:asym", "int8:row", "q4_0"])
def test_files_of_the_program(format, tmp_path):
    """What the lowbit program quantizes, Python reads, and the other way round."""
    x = normal(6, 256)
    lowbit.save_file({"w": x}, tmp_path / "plain.safetensors")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(PROGRAM.parents[1])}

    def run(*arguments):
        subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True, env=environment)

    run("quantize", tmp_path / "plain.safetensors", tmp_path / "small.safetensors", "--format", format)
    q = lowbit.load_file(tmp_path / "small.safetensors")["w"]
    assert_same_planes(q, lowbit.quantize(x, format))
    lowbit.save_file({"w": q}, tmp_path / "ours.safetensors")
    run("dequantize", tmp_path / "ours.safetensors", tmp_path / "back.safetensors")
    assert same_bits(lowbit.load_file(tmp_path / "back.safetensors")["w"], q.dequantize())

    # A checkpoint that the program quantized is the state_dict of quantized layers.
    from safetensors.torch import load_file

    linear = torch.nn.Linear(256, 6, bias=False)
    linear.weight.data.copy_(x)
    lowbit.save_file({"0.weight": x}, tmp_path / "model.safetensors")
    run("quantize", tmp_path / "model.safetensors", tmp_path / "layers.safetensors", "--format", format)
    model = torch.nn.Sequential(lowbit.nn.QuantizedLinear(256, 6, bias=False, scheme=format))
    model.load_state_dict(load_file(tmp_path / "layers.safetensors"))
    tokens = normal(3, 256)
    assert same_bits(model(tokens), lowbit.nn.QuantizedLinear.from_linear(linear, format)(tokens))
