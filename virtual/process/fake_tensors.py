"""Run without data: tensors are FakeTensors, and functional collectives use only their shapes.

Values that torch itself needs stay real: ranks in meshes, pickled objects, sampler orders and loaded batches.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn import functional
from torch.nn.parallel import distributed as data_parallel
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils.data import DistributedSampler, RandomSampler
from torch.utils.data import dataloader as loading
from torch.utils.weak import WeakIdKeyDictionary

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld

NAMESPACE = "_c10d_functional"


def _post(name: str, arguments: dict[str, Any], outs: list[torch.Tensor]) -> Any:
    group: Any = _resolve_process_group(arguments["group_name"])
    ins = arguments.get("inputs") or [arguments["input"]]
    op = getattr(dist.ReduceOp, arguments["reduce_op"].upper()) if "reduce_op" in arguments else None
    if name.startswith("all_reduce"):
        return group.allreduce(outs, op)
    if name.startswith("all_gather"):
        return group.all_gather_single_coalesced(outs, ins)
    if name.startswith("reduce_scatter"):
        return group.reduce_scatter_single_coalesced(outs, ins, op)
    if name.startswith("all_to_all"):
        return group.all_to_all_single(outs[0], ins[0], arguments["output_split_sizes"], arguments["input_split_sizes"])
    if name.startswith("broadcast"):
        return group.broadcast(outs, SimpleNamespace(rootRank=arguments["src"]))
    raise NotImplementedError(f"{NAMESPACE}.{name} is not supported with --fake; run without --fake")


OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip
MESHES = ("__init__", "_flatten", "_unflatten", "_create_sub_mesh", "_get_all_submeshes")
READ = torch.ops.aten._local_scalar_dense.default
NO_VALUES = (
    "with --fake, tensors have no values, but this line reads an integer, a boolean or a data-dependent shape: "
    "run without --fake, or remove the line"
)


class RankFakeMode(FakeTensorMode):
    """The FakeTensorMode of a rank. Reading an unknown float returns nan. Other unknown values raise RuntimeError."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._works = WeakIdKeyDictionary()  # pending functional collectives, by result tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _changes_values_alone(func):
            for tensor in args[0]:
                tensor.constant = None  # torch caches the values of small tensors, which are outdated now
            return None
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if func is READ and args[0].is_floating_point():
                return float("nan")
            _refuse()
        if func.namespace == NAMESPACE and result is not NotImplemented:
            self._post_or_wait(func, args, kwargs or {}, result)
        return result

    def _post_or_wait(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        name = func._schema.name.partition("::")[2]
        arguments = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        if name == "wait_tensor":
            work = self._works.pop(arguments["tensor"], None)
            if work is not None:
                work.wait()
        elif "group_name" in arguments:
            outs = [result] if isinstance(result, torch.Tensor) else list(result)
            work = _post(name, arguments, outs)
            for out in outs:
                self._works[out] = work


def install_fake_tensors(world: VirtualWorld, replaced: Replaced, gpu: bool) -> None:
    """Let torch use real tensors where it needs values, and exclude DTensor's shape propagation from compute time."""
    if gpu:  # one kernel on a GPU, but ten operators on a CPU
        replaced.put(functional, "rms_norm", _as_one_kernel)
    tried = "_propagate_tensor_meta_non_cached"
    replaced.wrap_for_ranks(ShardingPropagator, tried, partial(_call_uncounted, world))
    for module in (dist, c10d):
        for name in OBJECTS:
            replaced.wrap(module, name, _call_with_data)
    for place in (dist, device_mesh):
        replaced.wrap(place, "init_device_mesh", _call_with_data)
    for name in MESHES:
        replaced.wrap(device_mesh.DeviceMesh, name, _call_with_data)
    for sampler in (DistributedSampler, RandomSampler):
        replaced.wrap(sampler, "__iter__", lambda original, self: iter(_call_with_data(lambda: [*original(self)])))
    for name in ("__init__", "__next__"):
        replaced.wrap(loading._BaseDataLoaderIter, name, _call_with_data)
    for module in (optimizers, _foreach_utils):
        replaced.put(module, "_foreach_supported_types", [*module._foreach_supported_types, FakeTensor])
    # moving a module swaps its parameters, which torch rejects if modes refer to them
    replaced.put(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda tensor: ()))
    replaced.wrap(data_parallel, "_verify_param_shape_across_processes", _call_with_data)
    # DDP's second step broadcasts the order of gradients as values; without it, buckets keep the order of parameters
    replaced.put(dist.Reducer, "_rebuild_buckets", lambda reducer: False)  # type: ignore[attr-defined]


def _as_one_kernel(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """Return a layer norm in place of an RMS norm. It is a single operator and moves the same number of bytes."""
    return functional.layer_norm(x, shape, weight, None, eps or 1e-5)


def _refuse() -> NoReturn:
    raise RuntimeError(NO_VALUES) from None


@lru_cache(maxsize=1024)
def _changes_values_alone(func: Any) -> bool:
    """Return whether an operator is an in-place ``_foreach_`` operator, which has no effect on tensors without data."""
    schema = func._schema
    return bool(schema.name.startswith("aten::_foreach_") and not schema.returns)


def _call_with_data(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with unset_fake_temporarily():
        return function(*args, **named)


def _call_uncounted(world: VirtualWorld, rank: Rank, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    world.computing.charge(rank)
    result = function(*args, **named)
    world.computing.forget(rank)
    return result
