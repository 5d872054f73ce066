"""Workers of the tests of asynchronous collectives: ranks that compute and poll at the same time."""

import gc
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from real_cases import start

import realcomm

GROUPS = 20


def computing(rank: int, world_size: int) -> tuple[bool, int, bool]:
    """Return whether a collective was done at once, how often this rank computed until then, and whether all is right.

    No rank waits. The collective continues while the only Python thread computes.
    """
    tensor = start(rank, 4_000_000)
    dist.barrier()
    if rank:
        time.sleep(0.3)  # rank 0's cannot be done before
    work, square, done = realcomm.all_reduce(tensor, async_op=True), torch.full((64, 64), 1.0), 0
    early, until = work.is_completed(), time.monotonic() + 60
    while not work.is_completed() and time.monotonic() < until:
        square = square @ square / 64
        done += 1
    right = torch.equal(tensor, sum(start(r, 4_000_000) for r in range(world_size)))
    return early, done, right and bool((square == 1).all())


def many_groups(rank: int, world_size: int) -> tuple[list[float], int, int, int]:
    """Use ``GROUPS`` groups at a time, each twice, in opposite order on every other rank, and destroy them.

    Return wrong results, and the number of their threads: running, left of held groups, and at the end.
    """
    before, groups = threading.enumerate(), [dist.new_group(list(range(world_size))) for _ in range(GROUPS)]
    tensors = [torch.full((20_000,), float(rank + at)) for at in range(len(groups))]
    numbered = list(zip(groups, tensors, strict=True))[:: -1 if rank % 2 else 1]
    if rank:
        dist.barrier()  # nothing of rank 0 can be done before all of it has begun
    works = [realcomm.all_reduce(tensor, group=group, async_op=True) for _ in range(2) for group, tensor in numbered]
    if rank == 0:
        dist.barrier()
    for work in works:
        assert work is not None and work.wait(timedelta(seconds=60))
    first = world_size * (world_size - 1) / 2
    wanted = [world_size * (first + world_size * at) for at in range(len(groups))]
    wrong = [tensor[0].item() for tensor, want in zip(tensors, wanted, strict=True) if not bool((tensor == want).all())]
    known = [each for each in threading.enumerate() if each.name.startswith("ringlab") and each not in before]
    kept_groups, memory = groups[:10], [weakref.ref(group) for group in groups[10:]]
    for group in groups:
        dist.destroy_process_group(group)
    del group, groups, numbered, work, works
    gc.collect()
    # destroyed groups that are still referenced are found when an object is cached for a new group
    realcomm.all_reduce(torch.ones(1), group=dist.new_group(), async_op=True).wait()
    for thread in known:
        thread.join(10)
    left = sum(thread.is_alive() for thread in known)
    return wrong, len(known), left, sum(reference() is not None for reference in memory) + len(kept_groups) - 10


def waiting(rank: int, world_size: int) -> list[str]:
    """Return the errors of waits with too short or invalid timeouts, and the result through a future."""
    messages, tensor = [], torch.ones(1000)
    works = [realcomm.all_reduce(tensor, async_op=True)] if rank == 0 else []
    for timeout in (timedelta(seconds=0.2), 0.2) if rank == 0 else ():
        try:
            works[0].wait(timeout)
        except (TimeoutError, TypeError) as error:
            messages.append(f"{type(error).__name__}: {error}")
    dist.barrier()
    works = works or [realcomm.all_reduce(tensor, async_op=True)]
    value = works[0].get_future().then(lambda future: future.value()[0] + 1).wait()
    return [*messages, str(value.unique().item())]
