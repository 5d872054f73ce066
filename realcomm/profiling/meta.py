"""Profile a model on the meta device, where tensors have shapes but no data.

Batches of two sizes are traced, and their difference gives the costs per sample. A backward operation belongs to the
layer that created its autograd node in forward, which the node's sequence number identifies. This also holds for
in-place operations and for functions outside modules.
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

WHOLE = "(model)"  # the layer of the outermost module's own operations
LOSS = "loss"

OnOp = Callable[[str, bool, Any, Sequence[Any], dict[str, Any]], Any]  # layer, is_backward, op, arguments: its result
BATCHES = (2, 4)
CONTAINERS = (nn.Sequential, nn.ModuleList)
aten = torch.ops.aten
NO_BYTES = {aten.detach, aten.empty, aten.empty_like, aten.new_empty, aten.new_empty_strided, aten.alias}


class WatchedOps(TorchDispatchMode, AbstractContextManager[Any]):
    """Executes each operation in the context by calling ``on_op`` with the operation and its layer.

    Operations outside all modules belong to the layer ``LOSS``.
    """

    def __init__(self, model: nn.Module, on_op: OnOp) -> None:
        super().__init__()
        self.on_op, self.is_backward = on_op, False
        self.stack: list[str] = [LOSS]
        self._made_in: dict[int, str] = {}  # layer by number of the autograd node
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
        def enter(module: nn.Module, inputs: Any) -> None:
            self.stack.append(name)

        return enter

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.stack.pop()

    @property
    def layer(self) -> str:
        """The layer of the current operation, or "" for a backward operation whose layer is unknown."""
        if not self.is_backward:
            return self.stack[-1]
        node = torch._C._current_autograd_node()
        return self._made_in.get(node._sequence_nr(), "") if node is not None else ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch's compiler, and cost 2 ms per operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_backward:
            self._made_in.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.layer)
        return self.on_op(self.layer, self.is_backward, func, args, kwargs or {})


@dataclass
class _Counted:
    forward_flops: int = 0
    backward_flops: int = 0
    read: int = 0
    written: int = 0
    backward: int = 0
    saved: int = 0
    output: int = 0


@dataclass
class _TracedStep:
    """The costs of a training step, traced on the meta device and stored by layer in the order of first use."""

    parameters: set[int]  # storages of parameters and buffers
    layers: dict[str, _Counted] = field(default_factory=lambda: defaultdict(_Counted))
    held: dict[int, Tensor] = field(default_factory=dict)  # by storage, so that each storage is counted once

    def on_op(self, layer: str, is_backward: bool, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = op(*args, **kwargs)
        counted = self.layers[layer or LOSS] if layer or not is_backward else None
        if counted is None or op.is_view or op._overloadpacket in NO_BYTES:
            return result
        flops = _flops(op._overloadpacket, args, kwargs, result)
        read, written = (sum(_nbytes(each) for each in _tensors(part)) for part in ((args, kwargs), result))
        if is_backward:
            counted.backward_flops += flops
            counted.backward += read + written
        else:
            counted.forward_flops += flops
            counted.read += read
            counted.written += written
            counted.output = sum(_nbytes(each) for each in _tensors(result)[:1])
        return result

    def pack(self, watched: WatchedOps, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in self.parameters and storage not in self.held:
            self.held[storage] = tensor
            self.layers[watched.layer].saved += tensor.untyped_storage().nbytes()
        return tensor


def _flops(op: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int:
    """Return the FLOPs of an operation, from torch's FLOP counter except for a convolution's backward.

    For grouped convolutions, the counter is wrong. A convolution's backward computes two products, one for each
    gradient, with as many FLOPs each as the forward.
    """
    if op is aten.convolution_backward:
        (grad, inputs, weight), is_transposed, wanted = args[:3], args[7], args[10]
        return int(2 * (inputs if is_transposed else grad).numel() * weight[0].numel() * sum(wanted[:2]))
    count = flop_registry.get(op)
    return int(count(*args, **kwargs, out_val=result)) if count is not None else 0


class _FlashAttention(TorchFunctionMode):
    """Replaces attention by a GPU's flash attention operator if q, k and v have the same shape, without mask and
    dropout.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.scaled_dot_product_attention and len(args) == 3 and {*kwargs} <= {"is_causal"}:
            query, key, value = args
            if query.shape == key.shape == value.shape and query.dim() == 4:
                results = aten._scaled_dot_product_flash_attention(
                    query, key, value, 0.0, kwargs.get("is_causal", False)
                )
                return results[0]
        return func(*args, **kwargs)


def profile_on_meta(source: ModelSource) -> ModelProfile:
    """Return the profile of a model, without allocating memory or computing values.

    Raise InputError if the model cannot be built or traced, or if it has lazy layers.
    """
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
            raise _untraceable(source, "be traced", error) from error
    name = f"torch {torch.__version__.partition('+')[0]} on the meta device"
    layers = tuple(_layers(model, few, many))
    return ModelProfile(source.name, source.described, 4, name, layers, source.shape)


def _check_sizes(source: ModelSource, model: nn.Module) -> None:
    """Raise InputError for lazy layers, whose sizes depend on data."""
    for name, module in model.named_modules():
        if any(map(nn.parameter.is_lazy, _own(module))):
            layer = type(module).__name__.removeprefix("Lazy")
            raise InputError(f"model {quote(source.name)}: layer {name} has no sizes yet; use {layer} with fixed sizes")


def _untraceable(source: ModelSource, action: str, error: Exception) -> InputError:
    problem = describe_error(error, source.file)
    needs = "the model must take one batch of this shape, must not read tensor values, and must use its inputs' device"
    shape = f"with batches of {source.described} on the meta device, where tensors have no values"
    return InputError(f"model {quote(source.name)} cannot {action} {shape}: {problem}; {needs}")


def _follow(source: ModelSource, model: nn.Module, batch_size: int) -> _TracedStep:
    model.zero_grad(set_to_none=True)
    storages = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
    step = _TracedStep(storages)
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
    """Yield the layers with compute or parameters, block by block."""
    modules, taken = dict(model.named_modules()), set[int]()
    names = [name for name in few.layers if name]
    missed = [name for name, module in modules.items() if name not in few.layers and _own(module)]
    blocks = {name: _block_of(name, modules) for name in [*names, *missed]}
    order = {block: number for number, block in enumerate(dict.fromkeys(blocks.values()))}
    if blocks.get(WHOLE) == WHOLE and LOSS in blocks:
        order[LOSS] = len(order)
    rows = []
    for name in sorted([*names, *missed], key=lambda name: order[blocks[name]]):
        tensors = [each for each in _own(modules.get("" if name == WHOLE else name)) if id(each) not in taken]
        taken |= {id(each) for each in tensors}
        less, more = few.layers.get(name, _Counted()), many.layers.get(name, _Counted())
        kind = "loss" if name == LOSS else type(modules["" if name == WHOLE else name]).__name__
        sizes = tuple(each.numel() for each in tensors)
        numbers = [
            max(0, round((getattr(more, key) - count) / (BATCHES[1] - BATCHES[0]))) for key, count in vars(less).items()
        ]
        rows.append(Layer(name, kind, blocks[name], sizes, *numbers))
    yield from (row for row in rows if row.tensors or any(row[4:]))


def _own(module: nn.Module | None) -> list[nn.Parameter]:
    return [] if module is None else [each for each in module.parameters(recurse=False) if each.requires_grad]


def _block_of(name: str, modules: dict[str, nn.Module]) -> str:
    """Return the name of the outermost module around a layer, ignoring containers and stacks (``_is_stack``)."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        prefix = ".".join(parts[:length])
        module = modules.get(prefix)
        if module is not None and not isinstance(module, CONTAINERS) and not _is_stack(module):
            return prefix
    return name


def _is_stack(module: nn.Module) -> bool:
    """Return whether most parameters of a module are in one list of layers of the same class, as in an encoder."""
    lists = [each for each in module.children() if isinstance(each, CONTAINERS) and len({*map(type, each)}) == 1]
    total = sum(each.numel() for each in module.parameters())
    return any(len(each) > 1 and 2 * sum(p.numel() for p in each.parameters()) > total for each in lists)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def trace_in_worker(path: Path, name: str, text: str, sample: list[int] | None) -> dict[str, Any]:
    """Profile a user's model in the subprocess that executes the user's file; return the profile's fields."""
    source = find_model(text, None if sample is None else tuple(sample))
    source = source._replace(build=lambda: build_from_file(f"{path}:{name}"), file=path)
    return asdict(profile_on_meta(source))
