"""What the functional collectives are given, checked and resolved before anything is sent."""

from collections.abc import Sequence
from functools import lru_cache
from operator import index

import torch
import torch.distributed as dist

from collectives.catalogue import Algorithm, find_algorithm, library
from collectives.errors import InputError
from collectives.proof.verifier import verify
from realcomm.execution.executor import Executor

Group = dist.ProcessGroup | None
Op = str | dist.ReduceOp | dist.ReduceOp.RedOpType

REMEMBERED = 16  # executors, each with its scratch and staging
_OUTSIDE: object = dist.GroupMember.NON_GROUP_MEMBER  # what new_group gives a rank that is not in the group
_NAMES = [
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.AVG, "mean"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.PRODUCT, "product"),
]


class WrongType(InputError, TypeError):  # noqa: N818 - what happened
    """An argument is no tensor, list or whatever it must be; also a TypeError, as ``torch.distributed`` has it."""


def executor_for(
    collective: str,
    algorithm: str | Algorithm,
    tensor: torch.Tensor,
    op: Op,
    root: int | None,
    group: Group,
    times: int = 1,
) -> Executor:
    """The executor for buffers of so many ``times`` the elements of ``tensor``; one made before serves again.

    Raises InputError for arguments that do not fit.
    """
    found = resolved(collective, algorithm)
    group_rank = group_root(group, root) if found.spec.rooted else 0
    return _remembered(
        found, times * tensor.numel(), tensor.dtype, _op_name(op), group_rank, whole(group), tensor.device
    )


@lru_cache(maxsize=REMEMBERED)
def _remembered(
    algorithm: Algorithm,
    n: int,
    dtype: torch.dtype,
    op: str,
    root: int,
    group: dist.ProcessGroup,
    device: torch.device,
) -> Executor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if algorithm not in library().values():
        verify(algorithm, world_size, root)  # the library's own have been proved; a wrong one would hang or lie
    return Executor(algorithm, rank, world_size, n, dtype, op, root, group, device)


def resolved(collective: str, algorithm: str | Algorithm) -> Algorithm:
    """The algorithm that was named or given. Raises InputError unless it does what ``collective`` says."""
    if isinstance(algorithm, str):
        return _found(collective, algorithm)
    if not isinstance(algorithm, Algorithm):
        raise WrongType(
            f"algorithm is {algorithm!r}; give a name such as 'ring' or 'my.py:name', or an Algorithm. Other than in "
            f"torch.distributed it stands before op, group and async_op: give those by name"
        )
    if algorithm.spec.name != collective:
        raise InputError(f"{algorithm.full_name} is no {collective}; give one that was declared for it")
    return algorithm


@lru_cache(maxsize=REMEMBERED)
def _found(collective: str, name: str) -> Algorithm:
    return find_algorithm(name, collective)


def _op_name(op: Op) -> str:
    if isinstance(op, str):
        return op
    names = [name for known, name in _NAMES if isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)) and op == known]
    if not names:
        raise InputError(
            f"op {op} is not known; there are {', '.join(name for _, name in _NAMES)}, as a text or ReduceOp"
        )
    return names[0]


def whole(group: Group) -> dist.ProcessGroup:
    """The group itself, or that of all ranks. Raises InputError where there is none."""
    if not isinstance(group, dist.ProcessGroup | None):
        raise WrongType(f"group is {group!r}; give what torch.distributed.new_group made, or None for all ranks")
    found = group or (dist.group.WORLD if dist.is_initialized() else None)
    if found is None:
        raise InputError("there is no process group; call torch.distributed.init_process_group first")
    return found


def ranks_of(group: Group) -> tuple[int, int] | None:
    """This rank's place in the group and how many ranks it has; None for a rank outside it."""
    if group == _OUTSIDE:
        return None
    rank = dist.get_rank(whole(group))
    return None if rank < 0 else (rank, dist.get_world_size(group))


def group_root(group: Group, root: int | None) -> int:
    """What the group calls rank ``root`` of the world. Raises InputError for one that is not in it."""
    members = dist.get_process_group_ranks(whole(group))
    try:
        return members.index(index(root))  # type: ignore[arg-type]
    except TypeError:
        raise WrongType(f"rank {root!r} is no whole number") from None
    except ValueError:
        raise InputError(f"rank {root} is not one of the group's: {', '.join(map(str, members))}") from None


def world_root(group: Group, root: int | None, in_group: int | None, name: str) -> int:
    """The rank of the world that ``src`` or ``dst`` names, or ``group_src`` or ``group_dst``; 0 where neither does.

    Raises InputError where both do, or for a number that is no rank of the group. A rank outside the group gets 0.
    """
    if ranks_of(group) is None or root is None is in_group:
        return 0
    if in_group is None:
        return dist.get_process_group_ranks(whole(group))[group_root(group, root)]
    if root is not None:
        raise InputError(f"{name} is {root!r} and group_{name} is {in_group!r}; can't specify both")
    members = dist.get_process_group_ranks(whole(group))
    if not isinstance(in_group, int):
        raise WrongType(f"group_{name} {in_group!r} is no whole number")
    if not 0 <= in_group < len(members):
        raise InputError(f"group_{name} {in_group} is not one of 0 to {len(members) - 1}, the ranks of the group")
    return members[in_group]


def check_tensor(tensor: object, name: str, group: Group, is_result: bool) -> None:
    """Raise InputError unless the group can carry it, and for a result unless each element has memory of its own."""
    if not isinstance(tensor, torch.Tensor):
        raise WrongType(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.layout is not torch.strided:
        raise InputError(f"{name} has the layout {tensor.layout}; it must be dense")
    backend = _backends(whole(group)).get(tensor.device.type, "this group")
    if (tensor.device.type, backend == "nccl") not in (("cpu", False), ("cuda", True)):
        raise InputError(f"{name} is on {tensor.device}, which {backend} does not reach; gloo needs cpu, and nccl cuda")
    if is_result and 0 in (step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        raise InputError(f"{name} is expanded: several of its elements are the same memory; clone() it before")


@lru_cache(maxsize=8)
def _backends(group: dist.ProcessGroup) -> dict[str, str]:
    """Which backend serves which type of device."""
    pairs = (pair.partition(":") for pair in dist.get_backend_config(group).split(","))
    return {device: backend for device, _, backend in pairs}


def check_parts(large: torch.Tensor, large_name: str, small: torch.Tensor, small_name: str, world_size: int) -> None:
    """Raise InputError unless the one holds as many of the other as there are ranks."""
    if large.numel() != world_size * small.numel() or large.dtype != small.dtype or large.device != small.device:
        raise InputError(
            f"{large_name} is {told(large)} and {small_name} is {told(small)}; {large_name} needs the same dtype and "
            f"{world_size} times the elements, one part for each rank"
        )


def check_list(
    given: Sequence[torch.Tensor] | None,
    name: str,
    tensor: torch.Tensor,
    wanted: int,
    where: str,
    group: Group,
    is_result: bool,
    like: str = "tensor",
) -> Sequence[torch.Tensor]:
    """The tensors of a list that one rank gives. Raises InputError unless there are as many, like ``tensor``.

    ``like`` is what ``tensor`` is called, and ``where`` the rank that gives them.
    """
    parts = () if given is None else given
    if not isinstance(parts, list | tuple):
        raise WrongType(f"{name} is a {type(parts).__name__}; it must be a list of tensors")
    if len(parts) != wanted:
        needed = f"one for each rank, {wanted}" if wanted else f"none; only {where} gives them"
        raise InputError(f"{name} holds {len(parts)} tensors where there must be {needed}")
    for number, part in enumerate(parts):
        check_tensor(part, f"{name}[{number}]", group, is_result)
        if (part.shape, part.dtype, part.device) != (tensor.shape, tensor.dtype, tensor.device):
            raise InputError(
                f"{name}[{number}] is {told(part)} and {like} is {told(tensor)}; they must be alike, as unequal parts "
                f"are not supported"
            )
    return parts


def first_of(given: object, name: str, group: Group) -> torch.Tensor:
    """The first tensor of a list. Raises InputError where there is none."""
    if not isinstance(given, list | tuple):
        raise WrongType(f"{name} is a {type(given).__name__}; it must be a list of tensors")
    if not given:
        raise InputError(f"{name} holds no tensors; there must be one for each rank")
    check_tensor(given[0], f"{name}[0]", group, is_result=False)
    first: torch.Tensor = given[0]
    return first


def check_splits(sizes: Sequence[int] | None, name: str, tensor: torch.Tensor, world_size: int) -> None:
    """Raise InputError for sizes along the first dimension that are not the equal ones, which need not be given."""
    if not sizes:
        return
    rows = tensor.shape[0] if tensor.dim() else 0
    if [world_size * size for size in sizes] != [rows] * world_size:
        raise InputError(
            f"{name} is {list(sizes)} and the tensor is {told(tensor)}; unequal parts are not supported: the "
            f"{world_size} sizes must be equal and add up to its first dimension"
        )


def told(tensor: torch.Tensor) -> str:
    """Shape, type and device in words."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
