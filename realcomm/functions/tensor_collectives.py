"""The collectives of torch.distributed as functions on tensors, with the algorithm as an additional argument.

Names, positions and defaults of the arguments are as in ``torch.distributed``. Only ``algorithm`` is new; it is
keyword-only. All functions share these arguments:

* ``algorithm``: a name in the library (``ringlab list``), ``"my.py:name"``, or an Algorithm.
* ``op``: ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"product"``, or a ``torch.distributed.ReduceOp``.
* ``src``, ``dst``: the root's world rank, even if ``group`` is given. Default: 0. Alternatively, pass the root's rank
  in the group as ``group_src`` or ``group_dst``.
* ``group``: a process group, or None for all ranks. A rank outside the group does nothing and gets None.
* ``async_op``: return a handle at once (``wait``, ``is_completed``, ``get_future``). The tensors must not be used
  before ``wait()``. Without ``async_op``, return None when the collective is done.

Tensors may have any shape, strides and dtype that ``op`` can reduce. A list has one tensor for each rank, and all its
tensors have the same shape and dtype. The functions also work under ``inference_mode``, ``no_grad`` and ``autocast``.

All functions raise InputError, a ValueError, for invalid arguments before they send anything, even if ``async_op`` is
true. The group can still be used afterwards. All raise torch.distributed's RuntimeError if a peer is lost. After a
failed collective, the group rejects all later ones with DistBackendError; destroy it and create a new one.

The examples show rank 0 of two.
"""

from collections.abc import Sequence

import torch

from collectives.declaration import Algorithm
from collectives.errors import InputError
from realcomm.functions.tensor_call import (
    ALL,
    AlikeTensors,
    CallBuffer,
    Copies,
    Group,
    Op,
    Prepare,
    Tensors,
    check_input,
    check_output,
    check_parts,
    check_splits,
    describe_tensor,
    find_root,
    first_tensor,
    resolve_algorithm,
    run_collective,
)
from realcomm.functions.work import Handle
from realcomm.launching.group import own_device


def all_reduce(
    tensor: torch.Tensor,
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Reduce ``tensor`` across all ranks of ``group``, in place; every rank gets the result.

    ``tensor`` must have the same shape and dtype on every rank.

    >>> tensor = torch.tensor([1.0, 2.0]) + rank
    >>> realcomm.all_reduce(tensor, algorithm="halving_doubling")
    >>> tensor
    tensor([3., 5.])
    """
    return run_collective("all_reduce", algorithm, _in_place(tensor, group), group, async_op, op)


def broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    algorithm: str | Algorithm = "binomial",
) -> Handle:
    """Copy ``tensor`` from rank ``src`` to all ranks of ``group``, in place.

    ``tensor`` must have the same shape and dtype on every rank.

    >>> tensor = torch.tensor([1.0, 2.0]) + rank
    >>> realcomm.broadcast(tensor, src=1)
    >>> tensor
    tensor([2., 3.])
    """
    return run_collective("broadcast", algorithm, _in_place(tensor, group, (src, group_src, "src")), group, async_op)


def reduce(
    tensor: torch.Tensor,
    dst: int | None = None,
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    algorithm: str | Algorithm = "binomial",
) -> Handle:
    """Reduce ``tensor`` across all ranks of ``group``, in place; rank ``dst`` gets the result.

    ``tensor`` must have the same shape and dtype on every rank. On ranks other than ``dst``, its content is undefined
    afterwards.

    >>> tensor = torch.tensor([1.0, 2.0]) + rank
    >>> realcomm.reduce(tensor, dst=0, op="max")
    >>> tensor
    tensor([2., 3.])
    """
    return run_collective("reduce", algorithm, _in_place(tensor, group, (dst, group_dst, "dst")), group, async_op, op)


def all_gather_into_tensor(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Gather ``input_tensor`` from all ranks, in rank order, into ``output_tensor`` on every rank.

    ``input_tensor`` must have the same size on every rank. ``output_tensor`` must have ``world_size`` times as many
    elements.

    >>> gathered = torch.zeros(4)
    >>> realcomm.all_gather_into_tensor(gathered, torch.tensor([1.0, 2.0]) + rank)
    >>> gathered
    tensor([1., 2., 2., 3.])
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(output_tensor, "output_tensor", group)
        check_input(input_tensor, "input_tensor", group)
        check_parts(output_tensor, "output_tensor", input_tensor, "input_tensor", world_size)
        copies = [(input_tensor, rank)], [(output_tensor, ALL)]
        return CallBuffer(output_tensor.numel(), output_tensor, *copies, in_place=output_tensor)

    return run_collective("all_gather", algorithm, prepare, group, async_op)


def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Reduce ``input`` across all ranks. Rank r gets part r of the result in ``output``.

    ``input`` must have ``world_size`` times as many elements as ``output``, and is not changed.

    >>> output = torch.zeros(2)
    >>> realcomm.reduce_scatter_tensor(output, torch.tensor([1.0, 2.0, 1.0, 2.0]))
    >>> output
    tensor([2., 4.])
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(output, "output", group)
        check_input(input, "input", group)
        check_parts(input, "input", output, "output", world_size)
        return CallBuffer(input.numel(), input, [(input, ALL)], [(output, rank)])

    return run_collective("reduce_scatter", algorithm, prepare, group, async_op, op)


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "pairwise",
) -> Handle:
    """Send part i of ``input`` to rank i, and receive part i of ``output`` from rank i.

    Both tensors consist of ``world_size`` equal parts. If split sizes are given, they must be equal. ``input`` is not
    changed.

    >>> output = torch.zeros(2)
    >>> realcomm.all_to_all_single(output, torch.tensor([1.0, 1.0]) + rank)
    >>> output
    tensor([1., 2.])
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(output, "output", group)
        check_input(input, "input", group)
        if output.numel() != input.numel() or output.dtype != input.dtype or input.numel() % world_size:
            raise InputError(
                f"all_to_all_single: output is {describe_tensor(output)} and input is {describe_tensor(input)}; both "
                f"need the same dtype and number of elements, a multiple of {world_size}"
            )
        check_splits(output_split_sizes, "output_split_sizes", output, world_size)
        check_splits(input_split_sizes, "input_split_sizes", input, world_size)
        return CallBuffer(input.numel(), input, [(input, ALL)], [(output, ALL)])

    return run_collective("all_to_all", algorithm, prepare, group, async_op)


def barrier(group: Group = None, async_op: bool = False, *, algorithm: str | Algorithm = "dissemination") -> Handle:
    """Wait until every rank of ``group`` has called this.

    >>> realcomm.barrier()
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        chunks = resolve_algorithm("barrier", algorithm).chunks(world_size)
        return CallBuffer(chunks, torch.empty(0, device=own_device(group)))  # the content of its messages is arbitrary

    return run_collective("barrier", algorithm, prepare, group, async_op)


def _in_place(tensor: torch.Tensor, group: Group, root: tuple[int | None, int | None, str] | None = None) -> Prepare:
    """Return the ``prepare`` function of a collective that works in place. ``root`` is passed to ``find_root``."""

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(tensor, "tensor", group)
        number = 0 if root is None else find_root(group, *root)
        return CallBuffer(tensor.numel(), tensor, [(tensor, ALL)], [(tensor, ALL)], in_place=tensor, root=number)

    return prepare


def all_gather(
    tensor_list: Tensors,
    tensor: torch.Tensor,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Gather ``tensor`` from all ranks into ``tensor_list`` on every rank; entry i comes from rank i.

    >>> gathered = [torch.zeros(1), torch.zeros(1)]
    >>> realcomm.all_gather(gathered, torch.tensor([float(rank)]))
    >>> gathered
    [tensor([0.]), tensor([1.])]
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_input(tensor, "tensor", group)
        outputs = AlikeTensors(tensor, "tensor", group).check_outputs(tensor_list, "tensor_list", world_size)
        return CallBuffer(world_size * tensor.numel(), tensor, [(tensor, rank)], _numbered(outputs))

    return run_collective("all_gather", algorithm, prepare, group, async_op)


def reduce_scatter(
    output: torch.Tensor,
    input_list: Tensors,
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Reduce ``input_list`` across all ranks, entry by entry. Rank r gets entry r of the result in ``output``.

    >>> output = torch.zeros(1)
    >>> realcomm.reduce_scatter(output, [torch.ones(1), torch.ones(1)])
    >>> output
    tensor([2.])
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(output, "output", group)
        inputs = AlikeTensors(output, "output", group).check_inputs(input_list, "input_list", world_size)
        return CallBuffer(world_size * output.numel(), output, _numbered(inputs), [(output, rank)])

    return run_collective("reduce_scatter", algorithm, prepare, group, async_op, op)


def all_to_all(
    output_tensor_list: Tensors,
    input_tensor_list: Tensors,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "pairwise",
) -> Handle:
    """Send entry i of ``input_tensor_list`` to rank i, and receive entry i of ``output_tensor_list`` from rank i.

    >>> received = [torch.zeros(1), torch.zeros(1)]
    >>> realcomm.all_to_all(received, [torch.tensor([float(rank)]), torch.tensor([float(rank)])])
    >>> received
    [tensor([0.]), tensor([1.])]
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        first = first_tensor(input_tensor_list, "input_tensor_list", group)
        alike = AlikeTensors(first, "input_tensor_list[0]", group)
        inputs = alike.check_inputs(input_tensor_list, "input_tensor_list", world_size)
        outputs = alike.check_outputs(output_tensor_list, "output_tensor_list", world_size)
        return CallBuffer(world_size * first.numel(), first, _numbered(inputs), _numbered(outputs))

    return run_collective("all_to_all", algorithm, prepare, group, async_op)


def gather(
    tensor: torch.Tensor,
    gather_list: Tensors | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    algorithm: str | Algorithm = "binomial",
) -> Handle:
    """Gather ``tensor`` from all ranks into ``gather_list`` on rank ``dst``; entry i comes from rank i.

    Pass ``gather_list`` only on rank ``dst``.

    >>> gathered = [torch.zeros(1), torch.zeros(1)]
    >>> realcomm.gather(torch.tensor([rank + 1.0]), gathered if rank == 0 else None, dst=0)
    >>> gathered
    [tensor([1.]), tensor([2.])]
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_input(tensor, "tensor", group)
        root = find_root(group, dst, group_dst, "dst")
        wanted = world_size if rank == root else 0
        outputs = AlikeTensors(tensor, "tensor", group).check_outputs(gather_list, "gather_list", wanted, "dst")
        return CallBuffer(world_size * tensor.numel(), tensor, [(tensor, rank)], _numbered(outputs), root=root)

    return run_collective("gather", algorithm, prepare, group, async_op)


def scatter(
    tensor: torch.Tensor,
    scatter_list: Tensors | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    algorithm: str | Algorithm = "binomial",
) -> Handle:
    """Send entry i of ``scatter_list`` on rank ``src`` to rank i, which receives it in ``tensor``.

    Pass ``scatter_list`` only on rank ``src``.

    >>> tensor = torch.zeros(1)
    >>> realcomm.scatter(tensor, [torch.tensor([5.0]), torch.tensor([5.0])] if rank == 1 else None, src=1)
    >>> tensor
    tensor([5.])
    """

    def prepare(rank: int, world_size: int) -> CallBuffer:
        check_output(tensor, "tensor", group)
        root = find_root(group, src, group_src, "src")
        wanted = world_size if rank == root else 0
        inputs = AlikeTensors(tensor, "tensor", group).check_inputs(scatter_list, "scatter_list", wanted, "src")
        return CallBuffer(world_size * tensor.numel(), tensor, _numbered(inputs), [(tensor, rank)], root=root)

    return run_collective("scatter", algorithm, prepare, group, async_op)


def _numbered(tensors: Tensors) -> Copies:
    return [(tensor, number) for number, tensor in enumerate(tensors)]
