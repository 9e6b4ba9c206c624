"""merge_: linear layers of the same input become one, in place, before quantize_."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx, nn

from ._autograd import ACTIVATIONS
from ._model import FLOATS, find_owners
from ._report import MergeReport, ModuleReport
from ._select import Selection
from .nn import GatedLinear, GatedMLP, QuantizedLinear

_QKV = ("q_proj", "k_proj", "v_proj")
_GATE_UP = ("gate_proj", "up_proj")
_GATED = "down_proj(act_fn(gate_proj(x)) * up_proj(x))"


def _state(x: torch.Tensor) -> tuple[Any, ...]:
    """What the product of the very same tensor depends on: whether its numbers were changed, gradients, autocast."""
    version = None if torch.compiler.is_compiling() or x.is_inference() else x._version
    return version, torch.is_grad_enabled(), not x.is_meta and torch.is_autocast_enabled(x.device.type)


class _Shared:
    """A product of which some parts have not been taken yet. No module: setting an attribute of one costs microseconds."""

    def __init__(self) -> None:
        self.is_open = False  # the parent's forward runs
        self.clear()

    def clear(self) -> None:
        self.x: torch.Tensor | None = None
        self.y: torch.Tensor | None = None
        self.state: tuple[Any, ...] = ()
        self.left: list[int] = []

    def __reduce__(self) -> tuple[type[_Shared], tuple[()]]:  # a copy, or what is pickled, holds no product
        return _Shared, ()


class MergedLinear(nn.Module):
    """Several linear layers of the same input, stacked as one. It stands where the first of them stood, and gives that one's part of the
    result; a MergedPart stands for each of the others.

        parent.forward(x):   q_proj(x) ------> k_proj(x) ------> v_proj(x)
                             the product       held              held, and let go
                             [ q | k | v ]     [ . | k | . ]     [ . | . | v ]

    A product is held for the other parts while the parent's forward runs, and only for the tensor it was made of: a part that is given
    another one, in whatever order, makes the product by itself. Nothing is held outside of it.

    Under torch.compile and torch.inference_mode tensors have no versions: there, a forward that changes x in place between two parts would
    get the older product for the second.
    """

    linear: nn.Linear | QuantizedLinear

    def __init__(self, linear: nn.Linear, sizes: Sequence[int]):
        super().__init__()
        self.linear = linear
        self.sizes = tuple(sizes)
        self.starts = tuple(sum(self.sizes[:index]) for index in range(len(self.sizes)))
        self._shared = _Shared()

    def share_within(self, parent: nn.Module) -> None:
        parent.register_forward_pre_hook(self._open)
        parent.register_forward_hook(self._close, always_call=True)

    def _open(self, parent: nn.Module, inputs: Any) -> None:
        self._shared.clear()  # what an interrupt may have left
        self._shared.is_open = True

    def _close(self, parent: nn.Module, inputs: Any, outputs: Any) -> None:
        self._shared.is_open = False
        self._shared.clear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(0, x)

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        return self._product(index, x).narrow(-1, self.starts[index], self.sizes[index])

    def _product(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """The whole product, made now or held since another part asked for it."""
        shared = self._shared
        if not shared.is_open:
            return self.linear(x)
        y = shared.y
        if y is not None and x is shared.x and index in shared.left and _state(x) == shared.state:
            shared.left.remove(index)
            if not shared.left:
                shared.clear()
            return y
        y = self.linear(x)
        shared.x, shared.y, shared.state = x, y, _state(x)
        shared.left = [other for other in range(len(self.sizes)) if other != index]
        return y

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}"


class MergedPart(nn.Module):
    """One more part of a MergedLinear, which owns the weight."""

    owner: MergedLinear

    def __init__(self, owner: MergedLinear, index: int):
        super().__init__()
        self.__dict__["owner"] = owner  # no child: the state_dict has the weight once
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.owner.part(self.index, x)

    def extra_repr(self) -> str:
        return f"out_features={self.owner.sizes[self.index]}"


def _is_customized(module: nn.Module) -> bool:
    """Whether a call does more than the forward of its class."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


class _Shallow(fx.Tracer):
    """Takes each child for one operation."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _forward_of(module: nn.Module) -> str | None:
    """What forward(x) does, as an expression; None where it is more than calls of children and products."""
    try:
        nodes = list(_Shallow().trace(module).nodes)
    except Exception:  # whatever the code of others raises when x is no tensor
        return None
    said: dict[Any, str] = {}
    for node in nodes:
        arguments = [said.get(argument, repr(argument)) for argument in node.args]
        if node.op == "placeholder" and not said:
            said[node] = "x"
        elif node.op == "call_module" and len(arguments) == 1 and not node.kwargs:
            said[node] = f"{node.target}({arguments[0]})"
        elif node.target in (operator.mul, torch.mul) and len(arguments) == 2 and not node.kwargs:
            said[node] = " * ".join(sorted(arguments))
        elif node.op == "output":
            said[node] = arguments[0]
        else:
            return None
    # A child is called once, or the product of the children would not be all that a call does.
    return said[nodes[-1]] if len({node.target for node in nodes}) == len(nodes) else None


@torch.no_grad()
def _activation(function: nn.Module) -> str | None:
    """The name that QuantizedLinear has for it. There are many classes of the same few functions, so the values decide."""
    if _is_customized(function) or any(True for _ in function.parameters()) or any(True for _ in function.buffers()):
        return None
    near = torch.linspace(-30, 30, 6001, dtype=torch.float64, device="cpu")
    points = torch.cat((near, 1000 * near))
    try:
        found = function(points)
    except Exception:
        return None
    if not isinstance(found, torch.Tensor) or found.shape != points.shape or found.dtype != points.dtype:
        return None
    return next((name for name, known in ACTIVATIONS.items() if torch.allclose(found, known(points), rtol=1e-9, atol=1e-9)), None)


def _difference(linears: Mapping[str, nn.Linear]) -> str | None:
    """What linear layers must have in common to be stacked, and these have not."""
    for what, of in {
        "in_features": lambda linear: linear.in_features,
        "dtype": lambda linear: linear.weight.dtype,
        "device": lambda linear: linear.weight.device,
        "bias": lambda linear: linear.bias is not None,
        "requires_grad": lambda linear: [parameter.requires_grad for parameter in linear.parameters()],
    }.items():
        values = {name: of(linear) for name, linear in linears.items()}
        if any(value != next(iter(values.values())) for value in values.values()):
            return f"{what} differs: {', '.join(f'{name} {value}' for name, value in values.items())}"
    return None


def _stack(stacked: nn.Linear, linears: Iterable[nn.Linear]) -> None:
    """Fills a linear layer on the meta device with the rows of others."""
    linears = list(linears)
    for name, like in linears[0].named_parameters():
        rows = torch.cat([linear.get_parameter(name).detach() for linear in linears])
        setattr(stacked, name, nn.Parameter(rows, like.requires_grad))
    stacked.train(linears[0].training)


class _Merger:
    """One run of merge_. It keeps names, not modules: what is merged frees its memory before the next is."""

    def __init__(self, model: nn.Module, selection: Selection):
        self.model, self.selection = model, selection
        self.owners = find_owners(model)
        self.places: dict[int, list[str]] = {}  # where each module stands: shared ones have several
        for name, module in model.named_modules():
            for child_name, child in module._modules.items():
                self.places.setdefault(id(child), []).append(f"{name}.{child_name}".lstrip("."))

    def attention(self, name: str) -> ModuleReport:
        module = self.model.get_submodule(name)
        reason = self._reason(name, module, _QKV)
        if reason:
            return ModuleReport(name, _QKV, reason=reason)
        linears = [cast(nn.Linear, module.get_submodule(child)) for child in _QKV]
        sizes, like = [linear.out_features for linear in linears], linears[0]
        linear = nn.Linear(like.in_features, sum(sizes), like.bias is not None, device="meta", dtype=like.weight.dtype)
        _stack(linear, linears)
        merged = MergedLinear(linear, sizes).train(like.training)
        merged.share_within(module)
        for index, child in enumerate(_QKV):
            setattr(module, child, MergedPart(merged, index).train(like.training) if index else merged)
        return ModuleReport(name, _QKV, f"{_QKV[0]}.linear", tuple(linear.weight.shape))

    def mlp(self, name: str) -> ModuleReport:
        module = self.model.get_submodule(name)
        function = module._modules.get("act_fn")
        gate = None if function is None else _activation(function)
        reason = self._reason(name, module, _GATE_UP) or self._mlp_reason(module, gate)
        if reason or gate is None:
            return ModuleReport(name, _GATE_UP, reason=reason)
        linears = [cast(nn.Linear, module.get_submodule(child)) for child in _GATE_UP]
        like = linears[0]
        linear = GatedLinear(like.in_features, 2 * like.out_features, like.bias is not None, gate, "meta", like.weight.dtype)
        _stack(linear, linears)
        merged = GatedMLP(linear, module.get_submodule("down_proj"))
        merged.training = module.training
        for place in self.places[id(module)]:
            self.model.set_submodule(place, merged)
        return ModuleReport(name, _GATE_UP, "gate_up", tuple(linear.weight.shape), gate)

    def _reason(self, name: str, module: nn.Module, children: Sequence[str]) -> str | None:
        """Why the linear layers of a module cannot become one."""
        names = {child: f"{name}.{child}".lstrip(".") for child in children}
        reason = self.selection.reason(*names.values())
        if reason:
            return reason
        linears: dict[str, nn.Linear] = {}
        for child, full_name in names.items():
            linear = module.get_submodule(child)
            if type(linear) is not nn.Linear:
                return f"{child} is a {type(linear).__name__}, not a torch.nn.Linear"
            if _is_customized(linear):
                return f"{child} has hooks, or a forward of its own"
            others = set(self.places[id(linear)]) - {full_name}
            for parameter in linear.parameters():
                if type(parameter) is not nn.Parameter or parameter.dtype not in FLOATS:
                    return f"{child} has numbers of a {type(parameter).__name__} of {parameter.dtype}"
                others |= self.owners[id(parameter)] - {full_name}
            if others:
                return f"{child}, or its weight, is also that of {', '.join(sorted(others))}"
            linears[child] = linear
        return _difference(linears)

    def _mlp_reason(self, module: nn.Module, gate: str | None) -> str | None:
        """Why a module cannot be replaced by a GatedMLP, beside what its linear layers say."""
        if module is self.model:
            return "it is the model itself, which cannot replace itself"
        if gate is None:
            function = module._modules.get("act_fn")
            found = "missing" if function is None else f"a {type(function).__name__}"
            return f"act_fn is {found}, none of {', '.join(ACTIVATIONS)}"
        if _is_customized(module) or _forward_of(module) != _GATED:
            return f"its forward is not {_GATED}"
        down = module.get_submodule("down_proj")
        if not isinstance(down, nn.Linear):
            return f"down_proj is a {type(down).__name__}, not a torch.nn.Linear"
        sizes = [cast(nn.Linear, module.get_submodule(child)).out_features for child in _GATE_UP]
        return None if sizes[0] == sizes[1] else f"out_features differs: gate_proj {sizes[0]}, up_proj {sizes[1]}"


@torch.no_grad()
def merge_(
    model: nn.Module,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> MergeReport:
    """Makes one linear layer of those that read the same input, in place, and reports each module: what it has now, or why it was left
    alone. One large product is faster than several small ones. It comes before quantize_, and before an optimizer takes the parameters.

    q_proj, k_proj, v_proj: one layer of all their rows, at q_proj.linear; the forward of their module is as before.
    gate_proj, up_proj, down_proj around an act_fn: the module becomes a lowbit.nn.GatedMLP, whose gate is then part of the product.

    The state_dict has the names of the merged layers. include and exclude are regular expressions, of which one must be found in the name
    of a layer to be merged, or none; exclude wins. Leave out attention whose keys come from elsewhere than its queries: it is correct, but
    makes products that nobody uses.
    """
    merger = _Merger(model, Selection("merge_", include, exclude))
    steps = []
    for name, module in model.named_modules():
        if all(module._modules.get(child) is not None for child in _QKV):
            steps.append((merger.attention, name))
        if all(module._modules.get(child) is not None for child in (*_GATE_UP, "down_proj")):
            steps.append((merger.mlp, name))
    return MergeReport([step(name) for step, name in steps])
