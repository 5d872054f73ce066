"""What a rank says that it is doing: each of its threads' collectives, and what an error in a user's own code tells."""

import time
from datetime import timedelta
from threading import Thread

import pytest
import torch
import torch.distributed as dist

import realcomm
from collectives import find_algorithm
from collectives.call import CollectiveCall
from realcomm.execution.collective_sequence import CollectiveSequence
from realcomm.execution.own_collective import make_runner
from realcomm.launching.launcher import launch
from realcomm.launching.status import COLLECTIVE_BYTES, OTHERS, Slot, padded, private_slot


def waiting_slot(step: int, peer: int) -> Slot:
    slot = private_slot()
    slot.wait.collective[:] = padded("all_reduce/ring", COLLECTIVE_BYTES)
    slot.wait.location[0], slot.wait.location[1] = step, peer
    return slot


def test_a_status_names_what_each_thread_waits_for() -> None:
    slot = waiting_slot(2, 1)

    def wait_too() -> None:
        slot.wait.collective[:] = padded("broadcast/binomial", COLLECTIVE_BYTES)
        slot.wait.location[0], slot.wait.location[1] = 0, 3

    other = Thread(target=wait_too)
    other.start()
    other.join()
    assert slot.get() == (
        "starting, all_reduce/ring step 2, waiting for rank 1, broadcast/binomial step 0, waiting for rank 3"
    )
    slot.set("computing")
    assert slot.get() == "computing, broadcast/binomial step 0, waiting for rank 3"


def test_a_collective_of_the_backend_waits_for_all_others() -> None:
    assert waiting_slot(0, OTHERS).get() == "starting, all_reduce/ring, waiting for other ranks"


def left_alone_in_a_group(rank: int, world_size: int) -> list[str]:
    """Return the notes of the error that rank 1 gets in a group with rank 2, which stays away."""
    group = dist.new_group([1, 2], timeout=timedelta(seconds=1))
    if rank != 1:
        time.sleep(2.5)
        return []
    with pytest.raises(RuntimeError) as caught:
        realcomm.all_reduce(torch.ones(10), group=group)
    return list(caught.value.__notes__)


def test_ranks_of_a_group_are_named_as_in_the_world() -> None:
    _, (note,), _ = launch(left_alone_in_a_group, 3, timeout=60)
    assert note == "rank 1: all_reduce/ring step 0, waiting for rank 2"


def left_alone(rank: int, world_size: int) -> list[str]:
    """Return the notes of the errors that rank 0 gets where rank 1 stays away, in a call and in a wait for one."""
    groups = [dist.new_group(list(range(world_size)), timeout=timedelta(seconds=1)) for _ in range(2)]
    if rank == 1:
        time.sleep(4)
        return []
    notes = list[str]()
    for group, async_op in zip(groups, (False, True), strict=True):
        with pytest.raises(RuntimeError) as caught:
            realcomm.all_reduce(torch.ones(10), group=group, async_op=async_op).wait()
        notes += caught.value.__notes__
    return notes


def test_an_error_in_a_users_own_code_says_what_the_rank_was_waiting_for() -> None:
    assert launch(left_alone, 2, timeout=60) == [2 * ["rank 0: all_reduce/ring step 0, waiting for rank 1"], []]


def test_an_error_of_the_backends_own_collective_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Timed out")

    runner = make_runner(CollectiveCall(find_algorithm("all_reduce/gloo"), 10), 0, 2, torch.device("cpu"))
    monkeypatch.setattr(runner, "_call", fail)
    with pytest.raises(RuntimeError) as caught:
        runner.run(torch.ones(10), collective=CollectiveSequence().begin("all_reduce"))
    assert caught.value.__notes__ == ["rank 0: all_reduce/gloo, waiting for other ranks"]
