"""Run a backend's built-in collective, a single call of ``torch.distributed``, with the interface of an executor.

Buffers are laid out as in rank programs: shard i belongs to rank i. An all_to_all writes its result to a separate
buffer, as nccl-tests does when it measures out of place. The other collectives work in place.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from collectives.call import CollectiveCall, check_length, reduced_slice
from collectives.declaration import GLOO
from collectives.errors import InputError
from collectives.spec import OPS
from realcomm.execution.collective_sequence import Collective, sequence_of
from realcomm.execution.events import Event
from realcomm.execution.executor import Executor
from realcomm.launching.group import group_or_default
from realcomm.launching.status import COLLECTIVE_BYTES, OTHERS, own_slot, padded

REDUCE = {
    "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}  # fmt: skip


def torchs_function(name: str, old_name: str) -> Callable[..., Any]:
    """Return the function ``name`` of torch.distributed. In torch before 2.13, it is called ``old_name``."""
    function: Callable[..., Any] = getattr(dist, name if hasattr(dist, name) else old_name)
    return function


all_gather_single = torchs_function("all_gather_single", "all_gather_into_tensor")
reduce_scatter_single = torchs_function("reduce_scatter_single", "reduce_scatter_tensor")


class OwnCollective:
    """A backend's built-in collective on the default group, which one rank can run repeatedly.

    With two ranks:

    >>> own = OwnCollective(CollectiveCall(nccl("all_reduce"), elements=2), rank, world_size)  # doctest: +SKIP
    >>> own.run(torch.tensor([1.0, 2.0]))  # doctest: +SKIP
    """

    def __init__(self, call: CollectiveCall, rank: int, world_size: int, device: torch.device | str = "cpu") -> None:
        """Allocate the result buffer. Raise InputError for an unknown operator or shards of unequal length."""
        if call.op not in REDUCE:
            raise InputError(f"unknown op {call.op!r}; use one of {', '.join(OPS)}")
        check_length(call.algorithm, call.elements, world_size)
        self.call, self.rank, self.world_size = call, rank, world_size
        averages = call.op == "mean" and torch.device(device).type == "cuda"
        self._op = dist.ReduceOp.AVG if averages else REDUCE[call.op]
        spec = call.spec
        self._divided = reduced_slice(spec, rank, world_size, call.root, call.elements)
        self._divides = call.op == "mean" and not averages and spec.reduces
        self._received = torch.empty(
            call.elements if spec.moves else 0, dtype=getattr(torch, call.dtype), device=device
        )
        self._label = padded(call.algorithm.full_name, COLLECTIVE_BYTES)

    def run(
        self, tensor: torch.Tensor, record: list[Event] | None = None, collective: Collective | None = None
    ) -> None:
        """Run the collective on ``tensor``, as an Executor does. ``record`` stays empty, because the call has no steps.

        Raise RuntimeError if a peer is lost or an earlier collective of the group has failed.
        """
        name, wait = self.call.algorithm.full_name, own_slot().wait
        context = sequence_of(group_or_default()).begin(name) if collective is None else nullcontext(collective)
        with context, wait.noted_in_errors(self.rank, self._label):
            wait.location[0], wait.location[1] = 0, OTHERS
            self._call(tensor)
            if self._divides:
                tensor[self._divided] /= self.world_size

    def settle(self, tensor: torch.Tensor) -> None:
        """Copy the result from the separate buffer, if there is one, to ``tensor``."""
        if self.call.spec.moves:
            tensor.copy_(self._received)

    def _call(self, tensor: torch.Tensor) -> None:
        name, root = self.call.spec.name, self.call.root
        parts = tensor.chunk(self.world_size) if self.call.spec.has_parts else ()
        if name == "all_reduce":
            dist.all_reduce(tensor, self._op)
        elif name == "broadcast":
            dist.broadcast(tensor, root)
        elif name == "reduce":
            dist.reduce(tensor, root, self._op)
        elif name == "all_gather":
            all_gather_single(tensor, parts[self.rank])
        elif name == "reduce_scatter":
            reduce_scatter_single(parts[self.rank], tensor, self._op)
        elif name == "all_to_all":
            dist.all_to_all_single(self._received, tensor)
        elif name == "gather":
            dist.gather(parts[self.rank], list(parts) if self.rank == root else None, root)
        elif name == "scatter":
            dist.scatter(parts[self.rank], list(parts) if self.rank == root else None, root)
        else:
            raise InputError(f"torch.distributed has no {name} on a tensor")


Runner = Executor | OwnCollective


def make_runner(call: CollectiveCall, rank: int, world_size: int, device: torch.device) -> Runner:
    """Return an Executor or OwnCollective that runs the call on this rank. Raise InputError if the call is invalid."""
    algorithm = call.algorithm
    if not algorithm.has_program or (algorithm.backend == GLOO and device.type == "cpu"):
        return OwnCollective(call, rank, world_size, device)
    return Executor(call, rank, world_size, device=device)
