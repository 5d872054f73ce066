"""Rank programs on real tensors follow the contract of a step."""

from types import SimpleNamespace
from typing import Any

import pytest
import real_programs
import torch

from collectives.catalogue import library
from collectives.step import Kind
from realcomm.execution import nccl
from realcomm.launching.launcher import launch


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="NCCL needs a CUDA GPU, and this machine has none")
@pytest.mark.parametrize("world_size", [2, 4])
def test_every_algorithm_runs_on_one_gpu_over_nccl(world_size: int):
    results = launch(real_programs.on_one_gpu, world_size, backend="nccl", timeout=300)
    assert results == [(2 * len(library()), [])] * world_size


@pytest.mark.parametrize("grouped", [False, True], ids=["one by one", "grouped"])
@pytest.mark.parametrize(
    ("world_size", "seeds"), [(4, range(30)), *(pytest.param(p, range(60), marks=pytest.mark.slow) for p in (1, 2, 4))]
)
def test_random_programs_match_a_simulated_execution(world_size: int, seeds: range, grouped: bool):
    results = launch(real_programs.compare_with_oracle, world_size, seeds, grouped, timeout=120)
    assert results == [[]] * world_size


@pytest.fixture(scope="module")
def pair() -> dict[str, list[Any]]:
    return real_programs.by_worker(launch(real_programs.several, 2, real_programs.ON_TWO_RANKS))


@pytest.fixture(scope="module")
def trio() -> dict[str, list[Any]]:
    return real_programs.by_worker(launch(real_programs.several, 3, real_programs.ON_THREE_RANKS, timeout=60))


def test_executor_accepts_contiguous_tensors_only(pair: dict[str, list[Any]]):
    assert pair["shapes"] == [None, None]


def test_channel_communicators_are_reused_and_end_with_the_group():
    assert launch(real_programs.communicators_of_groups, 2, timeout=60) == [([1 + 10, 10], [1, 0])] * 2


def test_new_group_after_a_subgroup_with_channels_has_all_ranks(trio: dict[str, list[Any]]):
    (name, total), *others = trio["groups_after_channels"]
    assert others == [(name, total)] * 2 and total == 3.0


def test_executor_records_gpu_events_at_begin_and_waiting_steps(trio: dict[str, list[Any]]):
    steps = [(0, 2), (1, 2)], [(0, 1), (1, 1)]
    assert trio["marked_steps"] == [[], *(["begin", *marks, "begin", *marks] for marks in steps)]


def test_messages_of_a_step_are_posted_as_one_group():
    calls: list[str] = []
    group = SimpleNamespace(
        _start_coalescing=lambda device: calls.append(f"start {device}"),
        recv=lambda data, peer, tag: calls.append(f"receive {data[0].tolist()} from {peer}"),
        send=lambda data, peer, tag: calls.append(f"send {data[0].tolist()} to {peer}"),
        _end_coalescing=lambda device: SimpleNamespace(wait=lambda: calls.append("wait")),
    )
    data = nccl.as_bytes(torch.tensor([1, 2], dtype=torch.int8))
    work = nccl.post_group(group, [(2, data)], [(1, data)], torch.device("cuda", 3))  # type: ignore[arg-type]
    work.wait()
    work.wait()
    assert calls == ["start cuda:3", "receive [1, 2] from 2", "send [1, 2] to 1", "wait"]
    nccl.post_group(group, [], [], torch.device("cuda", 3)).wait()  # type: ignore[arg-type]
    assert len(calls) == 4


def test_executor_records_the_time_of_every_operation(trio: dict[str, list[Any]]):
    ranks = [long for long, _ in trio["recorded"]]
    for rank, (begin, events, end) in enumerate(ranks):
        kinds = [event.operation.kind for event in events]
        assert [kinds.count(kind) for kind in Kind] == [4, 2, 2, 0, 2]
        assert all(begin <= event.begin <= event.end <= end for event in events)
        assert sorted({event.step for event in events}) == [0, 1, 2, 3]
        sends = [event for event in events if event.operation.kind is Kind.SEND]
        arrivals = [event for event in ranks[(rank + 1) % 3][1] if event.operation.kind.receives]
        assert all(sent.begin < got.end for sent, got in zip(sends, arrivals, strict=True))  # by one clock
