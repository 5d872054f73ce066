"""A profile of a model that is never run: on the meta device, where tensors have a shape and no content.

Two batch sizes are followed; what grows with the batch is per sample, and what does not are the parameters. Autograd
numbers the nodes of its graph as forward makes them, so an operation of backward belongs to the layer in which the node
that executes it was made. That also holds for operations in place and for functions that no module wraps.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from collectives.errors import InputError, describe_error
from collectives.quoting import quote
from collectives.records.model_profile import Layer, ModelProfile
from realcomm.profiling.model_sources import ModelSource, find_model, loss_of
from realcomm.training.models import build_from_file

WHOLE = "(model)"  # the layer of what the outermost module computes itself
LOSS = "loss"

OnOp = Callable[[str, bool, Any, Sequence[Any], dict[str, Any]], Any]  # layer, is_backward, op, arguments: its result
BATCHES = (2, 4)
CONTAINERS = (nn.Sequential, nn.ModuleList)
aten = torch.ops.aten
NO_BYTES = {aten.detach, aten.empty, aten.empty_like, aten.new_empty, aten.new_empty_strided, aten.alias}


class WatchedOps(TorchDispatchMode, AbstractContextManager[Any]):
    """Within the context, carry out each operation by ``on_op``, which is told the layer.

    ``at(LOSS)`` is for what is computed outside of all modules.
    """

    def __init__(self, model: nn.Module, on_op: OnOp) -> None:
        super().__init__()
        self.on_op, self.is_backward = on_op, False
        self.stack: list[str] = [LOSS]
        self._made_in: dict[int, str] = {}  # by the number of a node of autograd
        self._hooks = ExitStack()
        self._model = model

    def __enter__(self) -> "WatchedOps":
        for name, module in self._model.named_modules():
            enter = module.register_forward_pre_hook(self._entering(name or WHOLE))
            self._hooks.callback(enter.remove)
            self._hooks.callback(module.register_forward_hook(self._leave, always_call=True).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()

    def _entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, given: Any) -> None:
            self.stack.append(name)

        return enter

    def _leave(self, module: nn.Module, given: Any, found: Any) -> None:
        self.stack.pop()

    @property
    def layer(self) -> str:
        """The layer of what is executed now."""
        if not self.is_backward:
            return self.stack[-1]
        node = torch._C._current_autograd_node()
        return self._made_in.get(node._sequence_nr(), "") if node is not None else ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler with the first operator, and takes 2 ms for each

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_backward:
            self._made_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.layer)
        return self.on_op(self.layer, self.is_backward, func, args, kwargs or {})


@dataclass
class _Counted:
    """What a layer does for a batch."""

    forward_flops: int = 0
    backward_flops: int = 0
    read: int = 0
    written: int = 0
    backward: int = 0
    saved: int = 0
    output: int = 0


@dataclass
class _TracedStep:
    """What a step on the meta device does, by layer, in the order in which layers are first met."""

    parameters: set[int]  # storages of parameters and buffers
    layers: dict[str, _Counted] = field(default_factory=lambda: defaultdict(_Counted))
    held: dict[int, Tensor] = field(default_factory=dict)  # by storage, so that none is counted twice

    def on_op(self, layer: str, is_backward: bool, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Carry out an operation and count it."""
        found = op(*args, **kwargs)
        counted = self.layers[layer or LOSS] if layer or not is_backward else None
        if counted is None or op.is_view or op._overloadpacket in NO_BYTES:
            return found
        flops = _flops(op._overloadpacket, args, kwargs, found)
        read, written = (sum(_nbytes(each) for each in _tensors(part)) for part in ((args, kwargs), found))
        if is_backward:
            counted.backward_flops += flops
            counted.backward += read + written
        else:
            counted.forward_flops += flops
            counted.read += read
            counted.written += written
            counted.output = sum(_nbytes(each) for each in _tensors(found)[:1])
        return found

    def pack(self, watched: WatchedOps, tensor: Tensor) -> Tensor:
        """Count a tensor that autograd keeps."""
        storage = tensor.untyped_storage()._cdata
        if storage not in self.parameters and storage not in self.held:
            self.held[storage] = tensor
            self.layers[watched.layer].saved += tensor.untyped_storage().nbytes()
        return tensor


def _flops(op: Any, args: Sequence[Any], kwargs: dict[str, Any], found: Any) -> int:
    """Return the FLOPs of an operation by torch's own counter, but of a convolution's backward.

    Each of its two products is as much work as forward, also in groups, where the counter says more.
    """
    if op is aten.convolution_backward:
        (grad, given, weight), is_transposed, wanted = args[:3], args[7], args[10]
        return int(2 * (given if is_transposed else grad).numel() * weight[0].numel() * sum(wanted[:2]))
    count = flop_registry.get(op)
    return int(count(*args, **kwargs, out_val=found)) if count is not None else 0


class _FlashAttention(TorchFunctionMode):
    """Within the context, attention without a mask or dropout is the fused kernel that a GPU takes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.scaled_dot_product_attention and len(args) == 3 and {*kwargs} <= {"is_causal"}:
            query, key, value = args
            if query.shape == key.shape == value.shape and query.dim() == 4:
                found = aten._scaled_dot_product_flash_attention(query, key, value, 0.0, kwargs.get("is_causal", False))
                return found[0]
        return func(*args, **kwargs)


def profile_on_meta(source: ModelSource) -> ModelProfile:
    """Return the profile of a model, without running it. Raise InputError for one that cannot be traced."""
    with torch.random.fork_rng(devices=()):
        try:
            with torch.device("meta"):
                model = source.build().train()
        except InputError:
            raise
        except Exception as error:
            raise _untraceable(source, "be built", error) from error
        _check_sizes(source, model)
        try:
            few, many = (_follow(source, model, batch) for batch in BATCHES)
        except Exception as error:
            raise _untraceable(source, "be followed", error) from error
    name = f"torch {torch.__version__.partition('+')[0]} on the meta device"
    layers = tuple(_layers(model, few, many))
    return ModelProfile(source.name, source.described, 4, name, layers, source.shape)


def _check_sizes(source: ModelSource, model: nn.Module) -> None:
    """Raise InputError for layers whose sizes are not known before data have passed them."""
    for name, module in model.named_modules():
        if any(map(nn.parameter.is_lazy, _own(module))):
            kind = type(module).__name__
            wanted = f"put a {kind.removeprefix('Lazy')} with its sizes there"
            raise InputError(f"model {quote(source.name)}: layer {name} is a {kind}, which has no size yet; {wanted}")


def _untraceable(source: ModelSource, done: str, error: Exception) -> InputError:
    why = describe_error(error, source.file)
    advice = (
        "; a model that is traced takes one batch of that shape, looks at no value of a tensor and makes its tensors "
        "on the device that it is given"
    )
    where = f"with batches of {source.described} on the meta device, where tensors have no values"
    return InputError(f"model {quote(source.name)} cannot {done} {where}: {why}{advice}")


def _follow(source: ModelSource, model: nn.Module, batch_size: int) -> _TracedStep:
    """Return what one step of ``batch_size`` samples does."""
    model.zero_grad(set_to_none=True)
    kept = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
    step = _TracedStep(kept)
    batch = source.batch(batch_size, "meta")
    watched = WatchedOps(model, step.on_op)

    def pack(tensor: Tensor) -> Tensor:
        return step.pack(watched, tensor)

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.device("meta"), hooks, _FlashAttention(), watched:
        loss = loss_of(model(batch))
        watched.is_backward = True
        loss.backward()
    return step


def _layers(model: nn.Module, few: _TracedStep, many: _TracedStep) -> Iterator[Layer]:
    """Yield the layers that compute something or have parameters, block after block."""
    modules, taken = dict(model.named_modules()), set[int]()
    names = [name for name in few.layers if name]
    missed = [name for name, module in modules.items() if name not in few.layers and _own(module)]
    blocks = {name: _block_of(name, modules) for name in [*names, *missed]}
    order = {block: number for number, block in enumerate(dict.fromkeys(blocks.values()))}
    if blocks.get(WHOLE) == WHOLE and LOSS in blocks:
        order[LOSS] = len(order)
    rows = []
    for name in sorted([*names, *missed], key=lambda one: order[blocks[one]]):
        tensors = [each for each in _own(modules.get("" if name == WHOLE else name)) if id(each) not in taken]
        taken |= {id(each) for each in tensors}
        less, more = few.layers.get(name, _Counted()), many.layers.get(name, _Counted())
        kind = "loss" if name == LOSS else type(modules["" if name == WHOLE else name]).__name__
        sizes = tuple(each.numel() for each in tensors)
        numbers = [_per_sample(getattr(less, key), getattr(more, key)) for key in vars(less)]
        rows.append(Layer(name, kind, blocks[name], sizes, *numbers))
    yield from (row for row in rows if row.tensors or any(row[4:]))


def _per_sample(less: int, more: int) -> int:
    return max(0, round((more - less) / (BATCHES[1] - BATCHES[0])))


def _own(module: nn.Module | None) -> list[nn.Parameter]:
    """Return the trained parameters that a module has itself."""
    return [] if module is None else [each for each in module.parameters(recurse=False) if each.requires_grad]


def _block_of(name: str, modules: dict[str, nn.Module]) -> str:
    """Return the outermost module with this layer in it that is neither a list of others nor little more than one."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        at = ".".join(parts[:length])
        module = modules.get(at)
        if module is not None and not isinstance(module, CONTAINERS) and not _is_stack(module):
            return at
    return name


def _is_stack(module: nn.Module) -> bool:
    """Return whether most parameters of a module are in a list of modules of one class, as an encoder's are."""
    lists = [each for each in module.children() if isinstance(each, CONTAINERS) and len({*map(type, each)}) == 1]
    whole = sum(each.numel() for each in module.parameters())
    return any(len(each) > 1 and 2 * sum(p.numel() for p in each.parameters()) > whole for each in lists)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def profile_named(text: str, sample: tuple[int, ...] | None) -> ModelProfile:
    """Return the profile of the model that ``text`` names. Raise InputError."""
    return profile_on_meta(find_model(text, sample))


def trace_in_guest(path: Path, name: str, text: str, sample: list[int] | None) -> dict[str, Any]:
    """Return the fields of the profile of a user's file, in the process that is there for the file."""
    source = find_model(text, None if sample is None else tuple(sample))
    source = source._replace(build=lambda: build_from_file(f"{path}:{name}"), file=path)
    return asdict(profile_on_meta(source))
