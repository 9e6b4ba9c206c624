"""merge_: q, k and v as one product, gate and up as another; alone, and before quantize_."""

import copy
import gc
import io
import weakref

import pytest

from torch_cases import FLOATS, lowbit, needs_cuda, normal, on_devices, same_bits, torch

nn, functional = torch.nn, torch.nn.functional
QuantizedLinear, GatedLinear, GatedMLP = lowbit.nn.QuantizedLinear, lowbit.nn.GatedLinear, lowbit.nn.GatedMLP
WIDTH, Q, KV, HIDDEN = 128, 128, 64, 192
SCHEMES = {"w4a16": 0.2, "w8a16": 0.02, "fp8": 0.1, "q4_0": 0.2}  # and the relative error of a layer's output


class Attention(nn.Module):
    """As others write it: merge_ does not know this forward."""

    def __init__(self, bias=True, inputs=WIDTH):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, Q, bias), nn.Linear(inputs, KV, bias)
        self.v_proj, self.o_proj = nn.Linear(inputs, KV, bias), nn.Linear(Q, WIDTH, bias)
        self.order, self.seen = "qkv", None

    def forward(self, x, keys=None):
        keys = x if keys is None else keys
        given = {"q": (self.q_proj, x), "k": (self.k_proj, keys), "v": (self.v_proj, keys)}
        found = {}
        for name in self.order:
            projection, argument = given[name]
            found[name] = projection(argument)
        q, k, v = (found[name].view(*found[name].shape[:-1], -1, 32).transpose(-2, -3) for name in "qkv")
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(-2, -3)
        return self.o_proj(y.reshape(*x.shape[:-1], Q))


class MLP(nn.Module):
    def __init__(self, act_fn=None, bias=False):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, HIDDEN, bias), nn.Linear(WIDTH, HIDDEN, bias)
        self.down_proj, self.act_fn = nn.Linear(HIDDEN, WIDTH, bias), act_fn or nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.attention, self.mlp = Attention(bias), MLP(bias=bias)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


def layers(device="cpu", bias=True, merge=True):
    """A layer, and the same one merged."""
    torch.manual_seed(0)
    plain = Layer(bias).to(device)
    merged = copy.deepcopy(plain)
    assert not merge or len(lowbit.merge_(merged).merged) == 2
    return plain, merged


def products(attention):
    """Counts, in the list that it returns, the calls of a merged layer."""
    calls = []
    attention.q_proj.linear.register_forward_hook(lambda *arguments: calls.append(1))
    return calls


def holds_nothing(attention):
    return attention.q_proj._shared.x is None and attention.q_proj._shared.y is None


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)


def relative_error(found, wanted):
    return float(torch.linalg.norm(found.double() - wanted.double()) / torch.linalg.norm(wanted.double()))


@pytest.mark.parametrize("bias", [True, False])
@on_devices
def test_results_are_the_same(device, bias):
    plain, merged = layers(device, bias)
    for lead in ((1, 1), (2, 7), (5,)):
        x = normal(*lead, WIDTH, device=device)
        assert close(merged(x), plain(x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_are_stacked(dtype):
    plain, merged = layers(merge=False)
    plain.to(dtype), merged.to(dtype)
    plain.eval(), merged.eval()
    lowbit.merge_(merged)
    attention, mlp = plain.attention, plain.mlp
    linear, gate_up = merged.attention.q_proj.linear, merged.mlp.gate_up
    assert type(linear) is nn.Linear and linear.out_features == Q + 2 * KV and linear.weight.dtype == dtype
    assert type(merged.mlp) is GatedMLP and type(gate_up) is GatedLinear and gate_up.gate == "silu"
    assert same_bits(linear.weight, torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]))
    assert same_bits(linear.bias, torch.cat([attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias]))
    assert same_bits(gate_up.weight, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]))
    assert same_bits(merged.mlp.down.weight, mlp.down_proj.weight)
    assert not any(module.training for module in merged.modules())
    assert sum(map(torch.numel, merged.parameters())) == sum(map(torch.numel, plain.parameters()))


@pytest.mark.parametrize("order", ["qkv", "qvk", "kqv", "kvq", "vqk", "vkq"])
def test_one_product_in_whatever_order(order):
    plain, merged = layers()
    merged.attention.order, calls, x = order, products(merged.attention), normal(2, 3, WIDTH)
    for count in (1, 2):
        assert close(merged(x), plain(x)) and len(calls) == count
    with torch.inference_mode():
        x = x + 1
        assert close(merged(x), plain(x)) and len(calls) == 3
    assert holds_nothing(merged.attention)


@pytest.mark.parametrize("order", ["qkv", "vkq", "kqv"])
@on_devices
def test_keys_from_elsewhere(device, order):
    plain, merged = layers(device)
    merged.attention.order = order
    x, keys = normal(2, 3, WIDTH, device=device), normal(2, 5, WIDTH, device=device)
    assert close(merged.attention(x, keys), plain.attention(x, keys))
    assert close(merged.attention(x, x.clone()), plain.attention(x))
    assert holds_nothing(merged.attention)


@pytest.mark.parametrize("scheme", [None, "w8a16"])
def test_parts_by_themselves(scheme):
    """Outside of their module's forward nothing is held, so that nothing can be out of date."""
    _, merged = layers()
    if scheme:
        lowbit.quantize_(merged, scheme)
    attention, calls, x = merged.attention, products(merged.attention), normal(3, WIDTH)
    whole = attention.q_proj.linear(x)
    assert same_bits(attention.v_proj(x), whole[..., Q + KV :]) and same_bits(attention.q_proj(x), whole[..., :Q])
    with torch.inference_mode():
        attention.q_proj(x)
        x.add_(1)
        assert same_bits(attention.k_proj(x), attention.q_proj.linear(x)[..., Q : Q + KV])
    assert len(calls) == 6 and holds_nothing(attention)


def test_a_tensor_that_changes_between_the_parts():
    class Changing(Attention):
        def forward(self, x):
            q = self.q_proj(x)
            x.mul_(2)
            return torch.cat((q, self.k_proj(x), self.v_proj(x)), -1)

    plain = Changing()
    merged = copy.deepcopy(plain)
    lowbit.merge_(merged)
    calls, x = products(merged), normal(3, WIDTH)
    with torch.no_grad():
        assert close(merged(x.clone()), plain(x.clone())) and len(calls) == 2


def test_gradients_that_some_parts_want():
    class Partly(Attention):
        def forward(self, x):
            with torch.no_grad():
                q = self.q_proj(x)
            return torch.cat((q, self.k_proj(x), self.v_proj(x)), -1)

    merged = Partly()
    lowbit.merge_(merged)
    calls, x = products(merged), normal(3, WIDTH)
    merged(x).sum().backward()
    assert merged.q_proj.linear.bias.grad.tolist() == [0] * Q + [3] * 2 * KV and len(calls) == 2


def test_the_product_is_let_go():
    class Looking(Attention):
        def forward(self, x):
            y = super().forward(x)
            self.seen = holds_nothing(self)
            return y

    merged = Looking()
    lowbit.merge_(merged)
    x = normal(3, WIDTH)
    merged(x)
    assert merged.seen  # at the last part already
    merged.order = "qkx"
    with pytest.raises(KeyError):
        merged(x)
    assert holds_nothing(merged) and not merged.q_proj._shared.is_open
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


@on_devices
def test_gradients(device):
    plain, merged = layers(device)
    x = normal(2, 3, WIDTH, device=device)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for model, given in zip((plain, merged), inputs):
        (model(given) ** 2).sum().backward()
    assert torch.allclose(inputs[1].grad, inputs[0].grad, rtol=1e-4, atol=1e-4)

    def stacked(parameter, *linears):
        return torch.cat([getattr(linear, parameter).grad for linear in linears])

    attention, mlp = plain.attention, plain.mlp
    for name in ("weight", "bias"):
        for found, wanted in (
            (merged.attention.q_proj.linear, stacked(name, attention.q_proj, attention.k_proj, attention.v_proj)),
            (merged.mlp.gate_up, stacked(name, mlp.gate_proj, mlp.up_proj)),
            (merged.mlp.down, stacked(name, mlp.down_proj)),
        ):
            assert torch.allclose(getattr(found, name).grad, wanted, rtol=1e-4, atol=1e-4)


def test_gradients_with_checkpoints():
    plain, merged = layers()
    x = normal(2, 3, WIDTH)
    grads = []
    for model in (plain, merged):
        given = x.clone().requires_grad_()
        torch.utils.checkpoint.checkpoint(model, given, use_reentrant=False).sum().backward()
        grads.append(given.grad)
    assert torch.allclose(grads[1], grads[0], rtol=1e-4, atol=1e-4)
    assert holds_nothing(merged.attention)


def test_frozen_parameters_stay_frozen():
    _, merged = layers(merge=False)
    merged.attention.requires_grad_(False)
    lowbit.merge_(merged)
    assert not any(parameter.requires_grad for parameter in merged.attention.parameters())
    assert all(parameter.requires_grad for parameter in merged.mlp.parameters())


@on_devices
def test_autocast(device):
    _, merged = layers(device)
    lowbit.quantize_(merged, "w8a16")
    calls, x = products(merged.attention), normal(2, 3, WIDTH, device=device)
    with torch.autocast(device, dtype=torch.bfloat16), torch.no_grad():
        y = merged.attention(x)
    assert y.dtype == torch.bfloat16 and len(calls) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
@on_devices
def test_quantize_a_merged_model(device, scheme):
    plain, merged = layers(device)
    report = lowbit.quantize_(merged, scheme)
    assert [layer.name for layer in report] == ["attention.q_proj.linear", "attention.o_proj", "mlp.gate_up", "mlp.down"]
    for layer in report:
        assert layer.is_quantized and layer.kernel not in (None, "?") and 0 < layer.error < SCHEMES[scheme]
    linear, gate_up = merged.attention.q_proj.linear, merged.mlp.gate_up
    assert type(linear) is type(gate_up) is QuantizedLinear and linear.gate is None and gate_up.gate == "silu"
    calls, x = products(merged.attention), normal(2, 3, WIDTH, device=device)
    with torch.no_grad():
        assert relative_error(merged(x), plain(x)) < SCHEMES[scheme] and len(calls) == 1
        # To the bit what one would write by hand.
        assert same_bits(merged.mlp(x), merged.mlp.down(gate_up(x)))
        assert same_bits(merged.attention.k_proj(x), linear(x)[..., Q : Q + KV])
        separate = QuantizedLinear.from_linear(plain.attention.k_proj, scheme)
        assert torch.allclose(merged.attention.k_proj(x), separate(x), rtol=1e-4, atol=1e-4)  # a row's numbers are its own


@pytest.mark.parametrize("scheme", [None, "w4a16", "q4_0"])
@on_devices
def test_state_dict(device, scheme):
    _, saved = layers(device)
    torch.manual_seed(1)
    loaded = Layer().to(device)
    lowbit.merge_(loaded)
    if scheme:
        lowbit.quantize_(saved, scheme)
        lowbit.quantize_(loaded, scheme)
    x = normal(2, 3, WIDTH, device=device)
    with torch.no_grad():
        assert not same_bits(loaded(x), saved(x))
        state = saved.state_dict()
        assert {key.rsplit(".", 1)[0] for key in state if key.endswith("bias")} == {
            "attention.q_proj.linear", "attention.o_proj", "mlp.gate_up", "mlp.down",
        }  # fmt: skip
        loaded.load_state_dict(state)
        assert same_bits(loaded(x), saved(x))


@pytest.mark.parametrize("scheme", [None, "w8a16"])
def test_copies(scheme):
    _, merged = layers()
    if scheme:
        lowbit.quantize_(merged, scheme)
    x = normal(2, 3, WIDTH)
    wanted = merged(x)
    file = io.BytesIO()
    torch.save(merged, file)
    file.seek(0)
    for other in (copy.deepcopy(merged), torch.load(file, weights_only=False)):
        assert other.attention.k_proj.owner is other.attention.q_proj is not merged.attention.q_proj
        calls = products(other.attention)
        assert same_bits(other(x), wanted) and len(calls) == 1
        with torch.no_grad():
            other.attention.q_proj.linear.bias.add_(1)
        assert not same_bits(other(x), wanted) and same_bits(merged(x), wanted)


def test_a_copy_in_the_middle_of_a_forward():
    class Copying(Attention):
        def forward(self, x):
            q = self.q_proj(x)
            self.seen = copy.deepcopy(self.q_proj)  # a product with gradients, which cannot be copied, is held
            return q

    merged = Copying()
    lowbit.merge_(merged)
    merged(normal(3, WIDTH))
    assert merged.seen._shared.y is None and not merged.seen._shared.is_open


@pytest.mark.parametrize("scheme", [None, "w4a16", "w8a16", "q4_0"])
@on_devices
def test_compile(device, scheme):
    torch._dynamo.reset()
    _, merged = layers(device)
    if scheme:
        lowbit.quantize_(merged, scheme)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    for compiled in (torch.compile(merged, fullgraph=True, backend=backend), torch.compile(merged, fullgraph=True, backend="aot_eager")):
        with torch.no_grad():
            for lead in ((1, 3), (1, 5), (2, 4)):
                x = normal(*lead, WIDTH, device=device)
                assert torch.allclose(compiled(x), merged(x), rtol=1e-4, atol=1e-4)
        assert holds_nothing(merged.attention)
    names = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum("linear" in name or "matmul" in name for name in names) == 4  # q k v, o, gate and up, down


def test_compiled_gradients():
    torch._dynamo.reset()
    plain, merged = layers()
    compiled = torch.compile(merged, fullgraph=True, backend="aot_eager")
    grads = []
    for model in (plain, compiled):
        x = normal(2, 3, WIDTH).requires_grad_()
        model(x).sum().backward()
        grads.append(x.grad)
    assert torch.allclose(grads[1], grads[0], rtol=1e-4, atol=1e-4)


def test_export():
    _, merged = layers()
    lowbit.quantize_(merged, "w4a16")
    exported = torch.export.export(merged, (normal(2, 4, WIDTH),), dynamic_shapes=({1: torch.export.Dim("tokens", min=2)},))
    x = normal(2, 7, WIDTH)
    assert torch.allclose(exported.module()(x), merged(x), rtol=1e-5, atol=1e-5)


@needs_cuda
@pytest.mark.parametrize("scheme", [None, *SCHEMES])
def test_cuda_graph(scheme):
    _, merged = layers("cuda")
    merged.half()
    if scheme:
        lowbit.quantize_(merged, scheme)
    x = normal(1, 2, WIDTH, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        wanted = merged(x)
        graph = torch.cuda.CUDAGraph()
        with lowbit.dependent_launch(), torch.cuda.graph(graph):
            y = merged(x)
        for seed in (0, 1):
            x.copy_(normal(1, 2, WIDTH, dtype=torch.float16, device="cuda", seed=seed))
            wanted = merged(x)
            graph.replay()
            assert torch.allclose(y, wanted, rtol=1e-3, atol=1e-3)


def test_meta_device():
    with torch.device("meta"):
        merged = Layer()
        assert len(lowbit.merge_(merged).merged) == 2
        assert merged(torch.empty(2, 3, WIDTH)).shape == (2, 3, WIDTH)
    assert all(parameter.is_meta for parameter in merged.parameters())
    merged.load_state_dict(layers()[1].state_dict(), assign=True)
    x = normal(2, 3, WIDTH)
    assert close(merged(x), layers()[0](x))


class Exact(nn.Module):
    """As some models write the usual function."""

    def forward(self, x):
        return x * 0.5 * (1 + torch.erf(x / 2**0.5))


GATES = {"silu": nn.SiLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "relu": nn.ReLU(), "erf": Exact()}


@pytest.mark.parametrize("gate", GATES)
@on_devices
def test_activations(device, gate):
    plain = nn.Sequential(MLP(GATES[gate])).to(device)
    merged, x = copy.deepcopy(plain), normal(3, WIDTH, device=device)
    [module] = lowbit.merge_(merged)
    assert module.gate == {"erf": "gelu"}.get(gate, gate)
    assert close(merged(x), plain(x))
    lowbit.quantize_(merged, "w8a16")
    with torch.no_grad():
        assert relative_error(merged(x), plain(x)) < 0.02 and f"gate={module.gate}" in repr(merged)


def changed(module, **children):
    for name, child in children.items():
        setattr(module, name, child)
    return module


class Derived(nn.Linear):
    pass


class Clamped(nn.Module):
    def forward(self, x):
        return functional.silu(x).clamp(max=40)


class Quick(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Scaled(MLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)) * 2


class Other(MLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x))


class Limited(MLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x).clamp(-7, 7))


class Branching(MLP):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class WithMore(MLP):
    def forward(self, x, scale=None):
        return super().forward(x)


def hooked(module):
    module.register_forward_hook(lambda *arguments: None)
    return module


def replaced(module):
    module.forward = lambda x: x
    return module


REFUSED = {
    "in_features": (lambda: Attention(inputs=96), "in_features differs: q_proj 128, k_proj 96, v_proj 96"),
    "dtype": (lambda: changed(Attention(), v_proj=nn.Linear(WIDTH, KV).half()), "dtype differs"),
    "bias": (lambda: changed(Attention(), q_proj=nn.Linear(WIDTH, Q, False)), "bias differs: q_proj False, k_proj True"),
    "device": (lambda: changed(Attention(), q_proj=nn.Linear(WIDTH, Q, device="meta")), "device differs: q_proj meta, k_proj cpu"),
    "frozen": (lambda: changed(Attention(), q_proj=nn.Linear(WIDTH, Q).requires_grad_(False)), "requires_grad differs"),
    "float64": (lambda: Attention().double(), "torch.float64"),
    "subclass": (lambda: changed(Attention(), k_proj=Derived(WIDTH, KV)), "k_proj is a Derived"),
    "hooks": (lambda: changed(Attention(), k_proj=hooked(nn.Linear(WIDTH, KV))), "k_proj has hooks"),
    "forward": (lambda: changed(Attention(), k_proj=replaced(nn.Linear(WIDTH, KV))), "k_proj has hooks, or a forward of its own"),
    "quantized": (lambda: changed(MLP(), up_proj=QuantizedLinear(WIDTH, HIDDEN)), "up_proj is a QuantizedLinear"),
    "tanh": (lambda: MLP(nn.Tanh()), "act_fn is a Tanh, none of "),
    "quick gelu": (lambda: MLP(Quick()), "act_fn is a Quick"),
    "clamped silu": (lambda: MLP(Clamped()), "act_fn is a Clamped"),
    "prelu": (lambda: MLP(nn.PReLU()), "act_fn is a PReLU"),
    "no act_fn": (lambda: changed(MLP(), act_fn=None), "act_fn is missing"),
    "hooks on the mlp": (lambda: hooked(MLP()), "its forward is not down_proj"),
    "scaled": (Scaled, "its forward is not"),
    "other": (Other, "its forward is not"),
    "limited": (Limited, "its forward is not"),
    "branching": (Branching, "its forward is not"),
    "more arguments": (WithMore, "its forward is not"),
    "up_proj": (lambda: changed(MLP(), up_proj=nn.Linear(WIDTH, 1, False)), "out_features differs: gate_proj 192, up_proj 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_left_alone(name):
    make, reason = REFUSED[name]
    model = nn.Sequential(make())
    children = dict(model.named_modules())
    [module] = lowbit.merge_(model)
    assert not module.is_merged and reason in module.reason
    assert dict(model.named_modules()) == children and (name == "hooks on the mlp" or not model[0]._forward_hooks)


def test_shared_modules():
    model = nn.ModuleDict({"a": Attention(), "b": Attention(), "c": MLP(), "d": nn.Embedding(HIDDEN, WIDTH)})
    model["b"].k_proj = model["a"].k_proj
    model["c"].up_proj.weight = model["d"].weight
    report = lowbit.merge_(model)
    assert not report.merged
    assert "also that of b.k_proj" in report["a"].reason and "also that of d" in report["c"].reason
    attention, mlp = Attention(), MLP()
    twice = nn.ModuleList([nn.Sequential(attention, mlp), nn.Sequential(attention, mlp)])
    assert [module.name for module in lowbit.merge_(twice).merged] == ["0.0", "0.1"]
    assert twice[0][1] is twice[1][1] and isinstance(twice[1][1], GatedMLP)


def test_report():
    model = nn.Sequential(Layer(), Layer(), nn.Sequential(MLP(nn.Tanh())))
    lines = str(lowbit.merge_(model, exclude="1.attention")).splitlines()
    assert lines[0].split() == ["module", "linears", "merged"] and len(lines) == 1 + 5 + 1
    assert lines[1].split("  ") == ["0.attention", "q_proj, k_proj, v_proj", "q_proj.linear, 256 x 128"]
    assert lines[2].startswith("0.mlp ") and lines[2].endswith("  gate_up, 384 x 128, gate=silu")
    assert lines[3].startswith("1.attention ") and lines[3].endswith("  left alone: excluded")
    assert "left alone: act_fn is a Tanh" in lines[5] and lines[-1] == "3 of 5 modules merged"
    assert str(lowbit.merge_(nn.Sequential(nn.Linear(4, 4)))) == "no modules with linear layers to merge"


def test_include_and_exclude():
    def merged(**choice):
        return [module.name for module in lowbit.merge_(nn.Sequential(Layer(), Layer()), **choice).merged]

    assert merged(include="mlp") == ["0.mlp", "1.mlp"]
    assert merged(include=r"^0\.", exclude="k_proj") == ["0.mlp"]
    assert merged(exclude=["0", "up_proj"]) == ["1.attention"]
    with pytest.raises(ValueError, match="merge_: include = .* no regular expression"):
        merged(include="(")


def test_the_model_itself():
    attention, x = Attention(), normal(3, WIDTH)
    wanted = attention(x)
    assert "(the model)" in str(lowbit.merge_(attention)) and close(attention(x), wanted)
    [module] = lowbit.merge_(MLP())
    assert module.reason == "it is the model itself, which cannot replace itself"


def test_merging_twice():
    _, merged = layers()
    [again] = lowbit.merge_(merged)
    assert again.reason == "q_proj is a MergedLinear, not a torch.nn.Linear"


def test_gated_linear():
    layer, x = GatedLinear(WIDTH, 2 * HIDDEN, gate="gelu"), normal(3, WIDTH)
    first, second = functional.linear(x, layer.weight, layer.bias).chunk(2, -1)
    assert close(layer(x), functional.gelu(first) * second) and "gate=gelu" in repr(layer)
    assert QuantizedLinear.from_linear(layer, "w8a16").gate == "gelu"
    with pytest.raises(ValueError, match="GatedLinear: gate = 'tanh'; use none, relu"):
        GatedLinear(8, 8, gate="tanh")
    with pytest.raises(ValueError, match="GatedLinear: out_features = 7, but a gate takes two halves"):
        GatedLinear(8, 7)


@pytest.mark.parametrize("scheme", [None, "w8a16"])
@on_devices
def test_llama(device, scheme):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed here")
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, vocab_size=100, num_hidden_layers=2
    )
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(config).to(device).eval()
    merged = copy.deepcopy(plain)
    assert len(lowbit.merge_(merged).merged) == 4
    calls = products(merged.model.layers[0].self_attn)
    if scheme:
        report = lowbit.quantize_(merged, scheme, exclude="lm_head")
        assert "model.layers.1.mlp.gate_up" in [layer.name for layer in report.quantized] and len(report.quantized) == 8
        calls = products(merged.model.layers[0].self_attn)
    tokens = torch.arange(12, device=device).reshape(2, 6)
    with torch.no_grad():
        assert relative_error(merged(tokens).logits, plain(tokens).logits) < (0.05 if scheme else 1e-5)
    assert len(calls) == 1
    if scheme is None:
        options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(merged.generate(tokens, **options), plain.generate(tokens, **options))
        assert len(calls) == 6
