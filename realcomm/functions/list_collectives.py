"""The collectives that take a list of tensors, one for each rank: torch.distributed's, with an algorithm.

The tensors of a list have one shape and type. All other arguments, what is returned and what is raised are as
``realcomm.functions.tensor_collectives`` describes. The examples show rank 0 of two.
"""

import torch

from collectives.declaration import Algorithm
from realcomm.functions.tensor_call import (
    AlikeTensors,
    CallBuffer,
    Copies,
    Group,
    Op,
    Tensors,
    check_input,
    check_output,
    find_root,
    first_tensor,
    run_collective,
)
from realcomm.functions.work import Handle


def all_gather(
    tensor_list: Tensors,
    tensor: torch.Tensor,
    group: Group = None,
    async_op: bool = False,
    *,
    algorithm: str | Algorithm = "ring",
) -> Handle:
    """Collect ``tensor`` of all ranks in ``tensor_list`` of every rank: entry i comes from rank i.

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
    """Reduce ``input_list`` over all ranks, entry by entry; ``output`` of rank r holds entry r of the result.

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
    """Send entry i of ``input_tensor_list`` to rank i; entry i of ``output_tensor_list`` comes from rank i.

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
    """Collect ``tensor`` of all ranks in ``gather_list`` of rank ``dst``: entry i comes from rank i.

    ``gather_list`` is given on ``dst`` only.

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
    """Send entry i of ``scatter_list`` of rank ``src`` to rank i, which receives it in ``tensor``.

    ``scatter_list`` is given on ``src`` only.

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
    """Return each tensor of a list with the part of the buffer that belongs to it."""
    return [(tensor, number) for number, tensor in enumerate(tensors)]
