"""Workers that compare the functions on tensors with torch's own."""

import doctest
import re
from collections.abc import Callable

import torch
import torch.distributed as dist

import realcomm
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.errors import InputError
from realcomm import classroom

FUNCTIONS = [name for name in realcomm.__all__ if hasattr(dist, name)]


def in_a_group(rank: int, world_size: int) -> list[float]:
    """Run collectives among ranks 1 and 3 of four, with world ranks as roots; the others do nothing."""
    group = dist.new_group([1, 3])
    tensor, other = torch.full((3,), float(rank)), torch.full((2,), float(rank))
    work = realcomm.all_reduce(tensor, group=group, async_op=True)
    if work is not None:
        work.wait()
    realcomm.broadcast(other, src=3, group=group)
    realcomm.barrier(group=group)
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        sent, total = torch.full((2,), float(rank)), torch.full((2,), float(rank))
        realcomm.execute("broadcast/naive", sent, root=1, group=group)
        realcomm.execute("all_reduce/ring", total, group=group)
        assert sent.tolist() == [3.0, 3.0] and total.tolist() == [4.0, 4.0]
    return [tensor[0].item(), other[0].item()]


def refusals(rank: int, world_size: int) -> list[str]:
    """Call the functions with invalid arguments on each rank alone, as nothing may be sent; return wrong messages."""
    three, four, zeros, ring = torch.zeros(3), torch.zeros(4), torch.zeros, realcomm.all_reduce
    gather, scatter, expanded = realcomm.gather, realcomm.scatter, torch.zeros(1).expand(3)
    of_values: list[tuple[str, Callable[[], object]]] = [
        ("unknown op 'median'", lambda: ring(three, op="median")),
        ("cannot reduce dtype 'complex64'", lambda: ring(three.to(torch.complex64), op="max")),
        ("did you mean all_reduce/ring", lambda: ring(three, algorithm="rings")),
        ("is not an algorithm for all", lambda: ring(three, algorithm=find_algorithm("broadcast/naive"))),
        ("tensor must be dense, not torch.sparse_coo", lambda: ring(three.to_sparse())),
        ("tensor is expanded", lambda: ring(expanded)),
        ("rank 2 is not in the group; its ranks are 0, 1", lambda: realcomm.broadcast(three, src=2)),
        (
            "output_tensor must have the same dtype and device, and 2 times",
            lambda: realcomm.all_gather_into_tensor(three, three),
        ),
        (
            "input must have the same dtype and device, and 2 times",
            lambda: realcomm.reduce_scatter_tensor(three, zeros(6).double()),
        ),
        ("a multiple of 2", lambda: realcomm.all_to_all_single(three, three)),
        (
            "gather_list must have no tensors on ranks except dst, not 1",
            lambda: gather(three, [three], dst=1 - rank),
        ),
        (r"gather_list\[0\] is \[3\] int32 on cpu and tensor", lambda: gather(three, [three.int()] * 2, dst=rank)),
        (r"scatter_list\[0\] is \[4\] .* and tensor is \[3\]", lambda: scatter(three, [four] * 2, src=rank)),
        ("rank and world_size must be", lambda: classroom.ring_all_reduce(three, rank + 1, 2)),
        ("src is 0 and group_src is 1; pass only one", lambda: realcomm.broadcast(three, 0, group_src=1)),
        ("group_dst must be .* from 0 to 1, not 2", lambda: realcomm.reduce(three, group_dst=2)),
        (
            r"tensor_list\[1\] is \[4\] .* tensor is \[3\] .*same shape",
            lambda: realcomm.all_gather([three, four], three),
        ),
        ("input_tensor_list is empty", lambda: realcomm.all_to_all([three, three], [])),
        (
            r"must be 2 equal sizes .* not \[1, 3\]",
            lambda: realcomm.all_to_all_single(four, four, input_split_sizes=[1, 3]),
        ),
        (r"tensor_list\[0\] and tensor_list\[1\] share", lambda: realcomm.all_gather([zeros(3)] * 2, three)),
    ]
    of_types: list[tuple[str, Callable[[], object]]] = [
        ("tensor must be a torch.Tensor, not list", lambda: ring([1.0, 2.0])),
        ("not <torch.*ProcessGroup", lambda: realcomm.broadcast(three, 0, algorithm=dist.group.WORLD)),
        ("src must be an integer, not '0'", lambda: realcomm.broadcast(three, "0")),
        ("gather_list must be a list of tensors, not Tensor", lambda: gather(three, zeros(2, 3), dst=rank)),
    ]
    wrong = list[str]()
    for calls, kinds in ((of_values, False), (of_types, True)):
        for pattern, call in calls:
            try:
                call()
                wrong.append(f"{pattern}: accepted")
            except InputError as error:
                if not re.search(pattern, str(error)) or isinstance(error, TypeError) != kinds:
                    wrong.append(f"{pattern}: {error!r}")
    return wrong


class AcceptAnything(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


def run_examples(rank: int, world_size: int) -> tuple[int, str]:
    """Run the examples of all collectives; return their number, and doctest's report. Only rank 0 prints."""
    report: list[str] = []
    runner = doctest.DocTestRunner(None if rank == 0 else AcceptAnything(), verbose=False)
    lesson = [classroom.broadcast, classroom.reduce, classroom.all_reduce, classroom.ring_all_reduce]
    values = {"realcomm": realcomm, "classroom": classroom, "torch": torch, "rank": rank, "world_size": world_size}
    values |= {"find_algorithm": find_algorithm, "CollectiveCall": CollectiveCall}
    values |= {"execute": realcomm.execute, "Executor": realcomm.Executor}
    for function in [*(getattr(realcomm, name) for name in FUNCTIONS), *lesson, realcomm.execute, realcomm.Executor]:
        text = function.__doc__.replace("# doctest: +SKIP", "")
        example = doctest.DocTestParser().get_doctest(text, dict(values), function.__name__, None, None)
        runner.run(example, out=report.append)
        dist.barrier()
    return runner.summarize(verbose=False).attempted, "".join(report)


def in_class(rank: int, world_size: int) -> list[list[float]]:
    sent, reduced, both, ring = (torch.full((5,), rank + 1.0) for _ in range(4))
    classroom.broadcast(sent, rank, world_size, src=1)
    classroom.reduce(reduced, rank, world_size, dst=1, op="mean")
    classroom.all_reduce(both, rank, world_size, "sum")
    classroom.ring_all_reduce(ring, rank, world_size, "mean")
    return [sent.tolist(), reduced.tolist() if rank == 1 else [], both.tolist(), ring.tolist()]
