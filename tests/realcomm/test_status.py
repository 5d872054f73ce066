"""The status of a rank: its threads' collectives, and notes in errors of torch.distributed."""

import time
from datetime import timedelta
from threading import Thread

import pytest
import torch
import torch.distributed as dist

import realcomm
from realcomm.launching.launcher import launch
from realcomm.launching.status import COLLECTIVE_BYTES, OTHERS, Slot, padded, private_slot


def waiting_slot(step: int, peer: int) -> Slot:
    slot = private_slot()
    slot.wait.collective[:] = padded("all_reduce/ring", COLLECTIVE_BYTES)
    slot.wait.location[0], slot.wait.location[1] = step, peer
    return slot


def test_status_lists_the_collective_that_each_thread_awaits() -> None:
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
    assert waiting_slot(0, OTHERS).get() == "starting, all_reduce/ring, waiting for other ranks"


def left_alone(rank: int, world_size: int) -> list[str]:
    """Return the notes of rank 1's errors in groups with rank 2, which stays away, in a call and in a wait."""
    groups = [dist.new_group([1, 2], timeout=timedelta(seconds=0.3)) for _ in range(2)]
    if rank != 1:
        time.sleep(2)
        return []
    notes = list[str]()
    for group, async_op in zip(groups, (False, True), strict=True):
        with pytest.raises(RuntimeError) as caught:
            realcomm.all_reduce(torch.ones(10), group=group, async_op=async_op).wait()
        notes += caught.value.__notes__
    return notes


def test_torch_errors_name_the_awaited_world_rank() -> None:
    notes = ["rank 1: all_reduce/ring step 0, waiting for rank 2"] * 2
    assert launch(left_alone, 3, timeout=60) == [[], notes, []]
