"""Check and resolve the arguments of a collective on tensors before anything is sent, then execute it."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import index
from typing import NamedTuple

import torch
import torch.distributed as dist

from collectives.call import CollectiveCall, part_slice
from collectives.catalogue import find_algorithm, library, no_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.proof.verifier import verify
from realcomm.execution.collective_sequence import Collective
from realcomm.execution.executor import Executor, dtype_name
from realcomm.execution.group_memory import Recent, keep_for
from realcomm.functions.work import Handle, start_work
from realcomm.launching.group import backends

Tensors = Sequence[torch.Tensor]
Group = dist.ProcessGroup | None
Op = str | dist.ReduceOp | dist.ReduceOp.RedOpType

_NAMES_KEPT = 64  # algorithms cached by name
_OUTSIDE: object = dist.GroupMember.NON_GROUP_MEMBER  # new_group's result on a rank outside the group
_OP_NAMES = [
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.AVG, "mean"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.PRODUCT, "product"),
]
ALL = None  # instead of a part's number: the whole buffer
Copies = Sequence[tuple[torch.Tensor, int | None]]  # a tensor, and the number of its part of the buffer


class WrongType(InputError, TypeError):  # noqa: N818 - named after the event
    """Raised if an argument has the wrong type. It is an InputError and, as in ``torch.distributed``, a TypeError."""


def resolve_algorithm(collective: str, algorithm: str | Algorithm) -> Algorithm:
    """Return ``algorithm``; if it is a name, look it up. Raise InputError unless it implements ``collective``."""
    if not isinstance(algorithm, str | Algorithm):
        raise WrongType(str(no_algorithm(algorithm)))
    return _find_algorithm(algorithm, collective)


_find_algorithm = lru_cache(maxsize=_NAMES_KEPT)(find_algorithm)


def op_name(op: Op) -> str:
    """Return Ringlab's name for a reduction operator. Raise InputError for a ``ReduceOp`` that is not supported."""
    if isinstance(op, str):
        return op
    is_torchs = isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType))
    names = [name for known, name in _OP_NAMES if is_torchs and op == known]
    if not names:
        supported = ", ".join(name for _, name in _OP_NAMES)
        raise InputError(f"unknown op {op}; use one of {supported}, as a string or ReduceOp")
    return names[0]


def process_group(group: Group) -> dist.ProcessGroup:
    """Return ``group``, or the default group if it is None.

    Raise InputError if ``group`` has another type, or if there is no default group.
    """
    if not isinstance(group, dist.ProcessGroup | None):
        raise WrongType(
            f"group must be a ProcessGroup of torch.distributed.new_group, or None for all ranks, not {group!r}"
        )
    chosen = group or (dist.group.WORLD if dist.is_initialized() else None)
    if chosen is None:
        raise InputError("there is no process group; call torch.distributed.init_process_group first")
    return chosen


def rank_and_world_size(group: Group) -> tuple[int, int] | None:
    """Return this process's rank in the group and the group's size, or None if the process is not in the group."""
    if group == _OUTSIDE:
        return None
    rank = dist.get_rank(process_group(group))
    return None if rank < 0 else (rank, dist.get_world_size(group))


def find_root(group: Group, root: int | None, in_group: int | None, name: str) -> int:
    """Return the group rank of the root, given as a world rank (``root``) or as a group rank (``in_group``).

    Default: world rank 0. ``name`` is the argument's name, "src" or "dst". Raise InputError if both ranks are given, or
    if the rank is not in the group.
    """
    members = dist.get_process_group_ranks(process_group(group))
    if in_group is None:
        return _number_in_group(members, 0 if root is None else root, name)
    if root is not None:
        raise InputError(f"{name} is {root!r} and group_{name} is {in_group!r}; pass only one of them")
    if not isinstance(in_group, int):
        raise WrongType(f"group_{name} must be an integer, not {in_group!r}")
    if not 0 <= in_group < len(members):
        raise InputError(f"group_{name} must be a group rank from 0 to {len(members) - 1}, not {in_group}")
    return in_group


def _number_in_group(members: list[int], rank: int, name: str) -> int:
    try:
        return members.index(index(rank))
    except TypeError:
        raise WrongType(f"{name} must be an integer, not {rank!r}") from None
    except ValueError:
        raise InputError(f"rank {rank} is not in the group; its ranks are {', '.join(map(str, members))}") from None


def check_input(tensor: object, name: str, group: Group) -> None:
    """Check that ``tensor`` is dense and on a device that the group's backend supports. Raise InputError otherwise."""
    if not isinstance(tensor, torch.Tensor):
        raise WrongType(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise InputError(f"{name} must be dense, not {tensor.layout}")
    backend = backends(process_group(group)).get(tensor.device.type, "this group")
    if (tensor.device.type, backend == "nccl") not in (("cpu", False), ("cuda", True)):
        raise InputError(
            f"{name} is on {tensor.device}, which {backend} does not support; gloo needs cpu, and nccl needs cuda"
        )


def check_output(tensor: torch.Tensor, name: str, group: Group) -> None:
    """Check ``tensor`` as ``check_input`` does. Also raise InputError if some of its elements share memory."""
    check_input(tensor, name, group)
    if 0 in (step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        raise InputError(f"{name} is expanded: several of its elements share memory; call clone() first")


def check_parts(large: torch.Tensor, large_name: str, small: torch.Tensor, small_name: str, world_size: int) -> None:
    """Check that ``large`` has ``world_size`` times the elements of ``small``, and the same dtype and device.

    Raise InputError otherwise.
    """
    if large.numel() != world_size * small.numel() or large.dtype != small.dtype or large.device != small.device:
        raise InputError(
            f"{large_name} is {describe_tensor(large)} and {small_name} is {describe_tensor(small)}; {large_name} "
            f"must have the same dtype and device, and {world_size} times as many elements"
        )


class AlikeTensors(NamedTuple):
    """Checks that lists of tensors match ``like``, the tensor that the caller passed as argument ``name``."""

    like: torch.Tensor
    name: str
    group: Group

    def check_inputs(self, tensors: Tensors | None, name: str, wanted: int, root_name: str = "") -> Tensors:
        """Check that a list has ``wanted`` tensors that match ``like``, and return it. Raise InputError otherwise.

        Shape, dtype and device must match. If only the root passes a list, ``wanted`` is 0 on the other ranks.
        ``root_name`` ("src" or "dst") is then the argument that selects the root.
        """
        listed = () if tensors is None else tensors
        if not isinstance(listed, list | tuple):
            raise WrongType(f"{name} must be a list of tensors, not {type(listed).__name__}")
        if len(listed) != wanted:
            expected = f"{wanted} tensors, one for each rank" if wanted else f"no tensors on ranks except {root_name}"
            raise InputError(f"{name} must have {expected}, not {len(listed)}")
        like = self.like
        for number, tensor in enumerate(listed):
            check_input(tensor, f"{name}[{number}]", self.group)
            if (tensor.shape, tensor.dtype, tensor.device) != (like.shape, like.dtype, like.device):
                raise InputError(
                    f"{name}[{number}] is {describe_tensor(tensor)} and {self.name} is {describe_tensor(like)}; "
                    "both must have the same shape, dtype and device"
                )
        return listed

    def check_outputs(self, tensors: Tensors | None, name: str, wanted: int, root_name: str = "") -> Tensors:
        """Check a list as ``check_inputs`` does. Also raise InputError if a tensor is expanded or two start at the same
        address.
        """
        listed = self.check_inputs(tensors, name, wanted, root_name)
        starts = dict[int, int]()
        for number, tensor in enumerate(listed):
            check_output(tensor, f"{name}[{number}]", self.group)
            other = starts.setdefault(tensor.data_ptr(), number)
            if other != number and tensor.numel():
                raise InputError(
                    f"{name}[{other}] and {name}[{number}] share memory; pass a separate tensor for each rank"
                )
        return listed


def first_tensor(tensors: object, name: str, group: Group) -> torch.Tensor:
    """Return the first tensor of a list. Raise InputError if there is none, or if ``check_input`` rejects it."""
    if not isinstance(tensors, list | tuple):
        raise WrongType(f"{name} must be a list of tensors, not {type(tensors).__name__}")
    if not tensors:
        raise InputError(f"{name} is empty; pass a tensor for each rank")
    check_input(tensors[0], f"{name}[0]", group)
    first: torch.Tensor = tensors[0]
    return first


def check_splits(sizes: object, name: str, tensor: torch.Tensor, world_size: int) -> None:
    """Check that split sizes are equal and add up to the tensor's first dimension. None and an empty list are valid.

    Raise InputError otherwise.
    """
    if sizes is None:
        return
    if not isinstance(sizes, list | tuple):
        raise WrongType(f"{name} must be a list of sizes, one for each rank, not {sizes!r}")
    if not sizes:
        return
    rows = tensor.shape[0] if tensor.dim() else 0
    if [world_size * size for size in sizes] != [rows] * world_size:
        raise InputError(
            f"{name} must be {world_size} equal sizes that add up to the first dimension of {describe_tensor(tensor)}, "
            f"not {list(sizes)}"
        )


def describe_tensor(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {dtype_name(tensor.dtype)} on {tensor.device}"


class CallBuffer(NamedTuple):
    """The buffer of a collective, with the tensors to copy into it before the collective and out of it afterwards."""

    elements: int
    like: torch.Tensor  # has the buffer's dtype and device
    inputs: Copies = ()
    outputs: Copies = ()
    in_place: torch.Tensor | None = None  # used as the buffer, without copies, if its memory layout allows
    root: int = 0  # a rank of the group


Prepare = Callable[[int, int], CallBuffer]  # called with (rank, world_size)


def run_collective(
    collective: str, algorithm: str | Algorithm, prepare: Prepare, group: Group, async_op: bool, op: Op = "sum"
) -> Handle:
    """Run a collective on the buffer that ``prepare(rank, world_size)`` returns. ``prepare`` also checks the arguments.

    Return a handle if ``async_op`` is true, otherwise None. A rank outside the group does nothing. Raise InputError for
    invalid arguments.
    """
    if (ranks := rank_and_world_size(group)) is None:
        return None
    buffer = prepare(*ranks)
    resolved, dtype = resolve_algorithm(collective, algorithm), dtype_name(buffer.like.dtype)
    call = CollectiveCall(resolved, buffer.elements, dtype, op_name(op), buffer.root)
    whole_group = process_group(group)
    device, executors = buffer.like.device, keep_for(whole_group, "executors", Recent[Executor])
    executor = executors.find((call, device), lambda: _make_executor(call, whole_group, device))

    def action(begun: Collective) -> None:
        _run(executor, buffer, ranks[1], begun)

    results = [tensor for tensor, _ in buffer.outputs]
    return start_work(action, resolved.full_name, whole_group, buffer.like.device, results, async_op)


def _run(executor: Executor, buffer: CallBuffer, world_size: int, collective: Collective) -> None:
    in_place = buffer.in_place
    memory = in_place if in_place is not None and is_plain(in_place) else executor.buffer
    for tensor, number in buffer.inputs:
        copy_elements(tensor, _part(memory, number, world_size))
    executor.run(memory, collective=collective)
    for tensor, number in buffer.outputs:
        copy_elements(_part(memory, number, world_size), tensor)


def _make_executor(call: CollectiveCall, group: dist.ProcessGroup, device: torch.device) -> Executor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if call.algorithm not in library().values():
        verify(call.algorithm, world_size, call.root)  # tests verify the library
    return Executor(call, rank, world_size, group, device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous in memory, and not a lazily conjugated or negated view."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def copy_elements(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy all elements in index order, even if the shapes differ. Do nothing if both are the same tensor."""
    if target is not source:
        target.detach().copy_(source.detach().reshape(target.shape))


def _part(buffer: torch.Tensor, number: int | None, world_size: int) -> torch.Tensor:
    """Return part ``number`` of ``world_size`` equal parts of a buffer, flat. If it is ``ALL``, return the buffer."""
    if number is ALL:
        return buffer
    return buffer.detach().view(-1)[part_slice(number, buffer.numel(), world_size)]
