"""What a Trace comes down to."""

import pytest

from collectives import Span, Trace, find_algorithm
from collectives.records.summary import collective_entry, training_entry
from collectives.training.workload import Training

JOB = Training(find_algorithm("all_reduce/ring"), batch_size=10)


def test_bandwidths_are_those_of_nccl_tests():
    facts = {"nbytes": 8e9, "time_min_s": 1.9, "time_max_s": 2.5}
    entry = collective_entry(Trace("all_reduce/ring", "measured", 4, 2.0, facts=facts))
    assert entry == {
        "collective": "all_reduce", "algorithm": "ring", "world_size": 4, "bytes": 8_000_000_000, "time_s": 2.0,
        "time_min_s": 1.9, "time_max_s": 2.5, "algbw_GBps": 4.0, "busbw_GBps": 6.0,
    }  # fmt: skip


def spans(step: int, rank: int, *seconds: float) -> list[Span]:
    names, at, found = ("forward", "backward", "sync", "optimizer"), 10.0 * step, []
    for name, length in zip(names, seconds, strict=True):
        found.append(Span(rank, name, step, at, at + length))
        at += length
    return found


def test_a_step_takes_the_mean_over_its_ranks_and_warm_up_does_not_count():
    found = [*spans(0, 0, 9, 9, 9, 9), *spans(0, 1, 9, 9, 9, 9)]
    for step in (1, 2, 3):
        found += spans(step, 0, 1, 2, 2, 1) + spans(step, 1, 1, 2, 2, 2)
    facts = {"batch_size": 10.0, "single_rank_step_s": 3.25, "warmup_steps": 1.0, "test_accuracy": 0.9}
    entry = training_entry(Trace("training/ring", "measured", 2, 40.0, spans=found, facts=facts), JOB)
    assert entry["step_s"] == 6.5
    assert (entry["forward_s"], entry["backward_s"], entry["sync_s"], entry["optimizer_s"]) == (1.0, 2.0, 2.0, 1.5)
    assert entry["samples_per_s"] == pytest.approx(20 / 6.5)
    assert entry["scaling_efficiency"] == 0.5
    assert entry["test_accuracy"] == 0.9
    assert "examples_seen" not in entry


def test_of_buckets_what_backward_does_not_hide_is_said():
    found = []
    for rank, (full, backward, sync) in enumerate([(2.5, 3.0, 0.5), (2.0, 3.0, 0.0)]):
        found += spans(0, rank, 1, backward - 1, sync, 1)
        found += [Span(rank, "bucket 0", 0, 1.5, 2.0), Span(rank, "bucket 1", 0, full, backward)]
    facts = {"batch_size": 10.0, "single_rank_step_s": 3.5, "warmup_steps": 0.0}
    trace = Trace("training/ddp", "measured", 2, 9.0, spans=found, facts=facts)
    assert training_entry(trace, JOB)["exposed_s"] == ((3.0 - 2.5 + 0.5) + (3.0 - 2.0)) / 2
    assert "exposed_s" not in training_entry(Trace("training/ring", "measured", 1, 4.0, spans=spans(0, 0, 1, 1, 1, 1),
                                                   facts=facts), JOB)  # fmt: skip
