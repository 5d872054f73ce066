"""Workers that compare the functions on tensors with torch's own."""

import doctest
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import realcomm
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.errors import InputError
from realcomm import classroom
from realcomm.launching.group import share_gpu

FUNCTIONS = [name for name in realcomm.__all__ if hasattr(dist, name)]


def numbers(rank: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return ((torch.arange(n) * 3 + rank * 5) % 7).to(dtype)


def by_any_name(rank: int, world_size: int, file: Path) -> list[float]:
    """Run algorithms given by name, with parameters, and from a user's file; return the results."""
    results = []
    for algorithm in ("naive", find_algorithm("all_reduce/chain").with_parameters(slices=3), f"{file}:mine"):
        tensor = torch.full((7,), rank + 1.0)
        realcomm.all_reduce(tensor, algorithm=algorithm)
        results.append(tensor.unique().item())
    return results


def in_a_group(rank: int, world_size: int) -> list[float]:
    """Run collectives among ranks 1 and 3 of four, with world ranks as roots; the others do nothing."""
    group = dist.new_group([1, 3])
    tensor = torch.full((3,), float(rank))
    work = realcomm.all_reduce(tensor, group=group, async_op=True)
    if work is not None:
        work.wait()
    other = torch.full((2,), float(rank))
    realcomm.broadcast(other, src=3, group=group)
    realcomm.barrier(group=group)
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        _by_the_groups_ranks(rank, group)
    return [tensor[0].item(), other[0].item()]


def _by_the_groups_ranks(rank: int, group: dist.ProcessGroup) -> None:
    """Compare roots given by ``group_src`` and ``group_dst`` with torch's own."""
    for module in (dist, realcomm):
        sent, total, share = torch.full((2,), float(rank)), torch.full((2,), float(rank)), torch.zeros(2)
        module.broadcast(sent, group_src=1, group=group)
        module.reduce(total, group_dst=1, group=group)
        gathered = [torch.zeros(2), torch.zeros(2)] if rank == 3 else None
        module.gather(torch.full((2,), float(rank)), gathered, group_dst=1, group=group)
        module.scatter(share, gathered, group_src=1, group=group)
        assert sent.tolist() == [3.0, 3.0] and share.tolist() == [float(rank)] * 2
        assert rank != 3 or total.tolist() == [4.0, 4.0]
    sent, total = torch.full((2,), float(rank)), torch.full((2,), float(rank))
    realcomm.execute("broadcast/naive", sent, root=1, group=group)
    realcomm.execute("all_reduce/ring", total, group=group)
    assert sent.tolist() == [3.0, 3.0] and total.tolist() == [4.0, 4.0]


def refused(call: Callable[[], object]) -> tuple[str, bool]:
    """Return the message of an InputError, and whether it is also a TypeError."""
    try:
        call()
    except InputError as error:
        return str(error), isinstance(error, TypeError)
    return "accepted", False


def refusals(rank: int, world_size: int) -> list[tuple[str, bool]]:
    """Call the functions with invalid arguments on each rank alone, as nothing may be sent; return the messages."""
    three, all_ranks = torch.zeros(3), dist.group.WORLD
    calls: list[Callable[[], object]] = [
        lambda: realcomm.all_reduce(three, op="median"),
        lambda: realcomm.all_reduce(three.int(), op="mean"),
        lambda: realcomm.all_reduce(three.to(torch.complex64), op="max"),
        lambda: realcomm.all_reduce(three, op=dist.ReduceOp.BAND),
        lambda: realcomm.all_reduce(three, op=3),
        lambda: realcomm.all_reduce(three, algorithm="rings"),
        lambda: realcomm.all_reduce(three, algorithm=find_algorithm("broadcast/naive")),
        lambda: realcomm.all_reduce(three.to_sparse()),
        lambda: realcomm.all_reduce(three.to("meta")),
        lambda: realcomm.all_reduce(torch.zeros(1).expand(3)),
        lambda: realcomm.broadcast(three, src=world_size),
        lambda: realcomm.all_gather_into_tensor(three, three),
        lambda: realcomm.reduce_scatter_tensor(three, torch.zeros(3 * world_size, dtype=torch.float64)),
        lambda: realcomm.all_to_all_single(torch.zeros(world_size + 1), torch.zeros(world_size + 1)),
        lambda: realcomm.gather(three, [three], dst=rank),
        lambda: realcomm.gather(three, [three], dst=1 - rank),
        lambda: realcomm.gather(three, [three.int()] * world_size, dst=rank),
        lambda: realcomm.gather(three, [torch.zeros(1).expand(3)] * world_size, dst=rank),
        lambda: realcomm.scatter(three, [torch.zeros(4)] * world_size, src=rank),
        lambda: classroom.ring_all_reduce(three, rank + 1, world_size),
        lambda: realcomm.broadcast(three, 0, group_src=1),
        lambda: realcomm.reduce(three, group_dst=2),
        lambda: realcomm.all_gather([three, torch.zeros(4)], three),
        lambda: realcomm.reduce_scatter(three, [three]),
        lambda: realcomm.all_to_all([three, torch.zeros(4)], [three, three]),
        lambda: realcomm.all_to_all([three, three], []),
        lambda: realcomm.all_to_all_single(torch.zeros(4), torch.zeros(4), input_split_sizes=[1, 3]),
        lambda: realcomm.all_gather([torch.zeros(3)] * world_size, three),
        lambda: realcomm.all_reduce([1.0, 2.0]),
        lambda: realcomm.all_reduce(three, algorithm=dist.ReduceOp.SUM),
        lambda: realcomm.broadcast(three, 0, algorithm=all_ranks),
        lambda: realcomm.broadcast(three, "0"),
        lambda: realcomm.reduce(three, group_dst="1"),
        lambda: realcomm.barrier("all"),
        lambda: realcomm.gather(three, torch.zeros(world_size, 3), dst=rank),
        lambda: realcomm.scatter(three, [None] * world_size, src=rank),
    ]
    return [refused(call) for call in calls]


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


def on_one_gpu(rank: int, world_size: int) -> tuple[list[str], float]:
    """Run collectives on a GPU that all ranks share, one of them overlapped; return wrong results."""
    share_gpu(rank)
    torch.cuda.set_device(0)
    wrong = []
    for name, algorithm in (("ring", "ring"), ("two channels", "bidirectional_ring"), ("naive", "naive")):
        tensor = numbers(rank, 1001).cuda()
        realcomm.all_reduce(tensor, algorithm=algorithm)
        if not torch.equal(tensor.cpu(), sum(numbers(r, 1001) for r in range(world_size))):
            wrong.append(name)
    late = torch.full((1 << 20,), 1.0, device="cuda")
    work = realcomm.all_reduce(late, async_op=True)
    busy = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
    work.wait()
    realcomm.barrier()
    return wrong, late.unique().item() + busy[0, 0].item()
