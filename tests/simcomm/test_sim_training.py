"""The training step as a timeline: what calibration says, plus the collective, and nothing else."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import simcomm
from collectives import Algorithm, InputError, find_algorithm
from collectives.declaration import nccl
from collectives.records.calibration import Calibration, ComputePoint, FittedLine, OverlapPoint
from collectives.records.environment import cores, threads_per_rank
from collectives.records.spans import PHASES as SUMMARY_PHASES
from collectives.training.workload import Buckets, ComputePhases, Training
from ringlab.shared.figures import training_figures
from simcomm.cluster.calibrated import as_emulated
from simcomm.model import faults

PHASES = ComputePhases(forward=0.1, backward=0.2, optimizer=0.05)
STAR = simcomm.star(8, "10 Gbit/s", "5 us")


def job(sync: str, compute: ComputePhases | None = PHASES) -> Training:
    return Training(find_algorithm(f"all_reduce/{sync}"), compute=compute)


def line(per_byte: float) -> FittedLine:
    return FittedLine(0.0, per_byte, 0.0)


def calibration(ranks: int, compute: list[ComputePoint]) -> Calibration:
    return Calibration(ranks, threads_per_rank(ranks), line(1e-9), line(4e-9), line(0.0), compute=compute)


def point(processes: int, threads: int, phases: ComputePhases) -> ComputePoint:
    return ComputePoint("resnet18", "digits", 32, processes, threads, phases, 0.0)


@pytest.mark.parametrize("sync", ["naive", "ring", "unchunked_ring"])
def test_a_step_is_its_phases_and_the_collective(sync: str):
    entry = training_figures(simcomm.train(job(sync), STAR), job(sync))
    alone = simcomm.run(f"all_reduce/{sync}", STAR, job(sync).gradient_bytes).elapsed
    assert entry.forward_s == pytest.approx(0.1, rel=1e-9)
    assert entry.backward_s == pytest.approx(0.2, rel=1e-9)
    assert entry.optimizer_s == pytest.approx(0.05, rel=1e-9)
    if sync == "ring":  # all ranks begin and end together
        assert entry.step_s == pytest.approx(0.35 + alone, rel=1e-9)
        assert entry.samples_per_s == pytest.approx(8 * 32 / (0.35 + alone), rel=1e-9)
        assert entry.scaling_efficiency == pytest.approx(0.35 / (0.35 + alone), rel=1e-9)


@pytest.mark.parametrize("changed", [{}, {"buckets": Buckets()}])
def test_a_step_begins_with_loading_its_batch(changed: dict[str, Any]):
    slow = faults.Faults(ranks=(faults.RankFault(3, slowdown=3.0),)) if not changed else faults.NO_FAULTS
    training = replace(job("ring", replace(PHASES, loading=0.03)), **changed)
    without = replace(training, compute=PHASES)
    trace, plain = (simcomm.train(one, STAR, steps=2, faults=slow) for one in (training, without))
    entry, expected = training_figures(trace, training), training_figures(plain, without)
    ranks = 10 / 8 if not changed else 1.0  # rank 3 takes three times as long to load, too
    assert entry.loading_s == pytest.approx(0.03 * ranks) and expected.loading_s == 0
    assert (entry.forward_s, entry.backward_s) == pytest.approx((expected.forward_s, expected.backward_s))
    slowest = 3 if not changed else 1
    assert entry.step_s == pytest.approx(expected.step_s + slowest * 0.03)
    own = [span for span in trace.spans if span.rank == 3 and not span.name.startswith("bucket")]
    assert [span.name for span in own if span.name != "reduce"][:5] == [*SUMMARY_PHASES]
    assert all(one.end == other.begin for one, other in pairwise(own) if other.name == "forward")
    assert trace.facts["single_rank_step_s"] == pytest.approx(0.38)


def test_calibrated_phases_are_those_of_as_many_ranks_and_threads():
    together, alone = ComputePhases(0.2, 0.4, 0.1), ComputePhases(0.1, 0.2, 0.05)
    threads = threads_per_rank(2)
    numbers = calibration(2, [point(2, threads, together), point(1, threads, alone)])
    trace = simcomm.train(job("ring", None), simcomm.this_machine(2), calibration=numbers)
    entry = training_figures(trace, job("ring"))
    sync = job("ring").gradient_bytes * 4e-9  # both ways at once: two halves of n bytes, twice
    assert entry.forward_s == pytest.approx(0.2, rel=1e-9)
    assert entry.sync_s == pytest.approx(sync, rel=1e-6)
    assert entry.scaling_efficiency == pytest.approx(0.35 / (0.7 + sync), rel=1e-6)


def test_hosts_of_their_own_have_all_their_cores():
    numbers = calibration(2, [point(1, cores(), PHASES)])
    cluster = simcomm.star(4, "10 Gbit/s", "5 us", transport=None)
    entry = training_figures(simcomm.train(job("ring", None), cluster, calibration=numbers), job("ring"))
    assert entry.forward_s == pytest.approx(0.1, rel=1e-9)


def test_missing_phases_and_ddp_are_refused():
    with pytest.raises(InputError, match=r"no compute times for resnet18, digits, batch size 32"):
        simcomm.train(job("ring", None), STAR, calibration=calibration(2, []))
    with pytest.raises(InputError, match="only supported on this machine"):
        simcomm.train(Training(None, compute=PHASES), STAR)


@pytest.mark.parametrize("sync", [None, nccl("all_reduce")])
def test_trouble_and_engines_are_refused_where_a_sync_has_no_messages(sync: Algorithm | None):
    """A slow rank or an engine would change nothing of what is predicted as a whole."""
    whole, here = Training(sync, compute=PHASES), simcomm.this_machine(2)
    slow = simcomm.Faults(ranks=(simcomm.RankFault(0, slowdown=2),))
    with pytest.raises(InputError, match=rf"'{whole.sync_name}' .* does not support faults; remove"):
        simcomm.train(whole, here, faults=slow)
    with pytest.raises(InputError, match="does not use engine 'simpy'; omit the engine"):
        simcomm.train(whole, here, engine="simpy")


def test_a_calibration_of_another_number_of_ranks_is_refused():
    with pytest.raises(InputError, match="of 2 ranks, but 3 ranks of this machine has 3"):
        simcomm.run("all_reduce/ring", simcomm.this_machine(3), 8, calibration=calibration(2, []))


def test_emulated_ranks_that_wait_leave_the_cores_to_others(monkeypatch):
    """All begin at once and share two cores; naive lets them go on one after the other, each on a core of its own."""
    for module in (
        "simcomm.performance_models.emulated_model",
        "simcomm.performance_models.performance_model",
        "simcomm.performance_models.measured_times",
    ):
        monkeypatch.setattr(f"{module}.threads_per_rank", lambda ranks: 1)
    monkeypatch.setattr("simcomm.performance_models.emulated_model.cores", lambda: 2)
    training = Training(find_algorithm("all_reduce/naive"), model="my.py:build", parameters=100_000)
    hop, kind = FittedLine(2e-5, 1e-9, 0.0), (training.model_kind, training.dataset, training.batch_size)
    compute = [ComputePoint(*kind, processes, 1, ComputePhases(0.1, 0.2, 0.05), 0.0) for processes in (1, 2)]
    found = Calibration(2, 1, one_way=hop, both_ways=hop, reduction=hop, compute=compute)
    cluster = simcomm.star(4, "4 Mbit/s", "0 us", None)
    cluster = as_emulated(replace(cluster, tcp_terms={"window": 65e3, "send_buffer": 0.0}))
    with pytest.raises(InputError, match="engine 'simpy' does not support TCP"):
        simcomm.train(training, cluster, steps=2, calibration=found, engine="simpy")
    trace = simcomm.train(training, cluster, steps=2, calibration=found)
    lengths = {(span.name, span.rank, span.step): span.end - span.begin for span in trace.spans}
    assert [lengths["forward", rank, 0] for rank in range(4)] == pytest.approx([0.2] * 4)
    assert [lengths["backward", rank, 0] for rank in range(4)] == pytest.approx([0.4] * 4)
    assert [lengths["forward", rank, 1] for rank in (1, 2, 3)] == pytest.approx([0.1] * 3)
    whole = simcomm.train(training, cluster, calibration=found)
    ends = [max(span.end for span in whole.spans if (span.name, span.step) == ("optimizer", step)) for step in (0, 4)]
    entry = training_figures(whole, training)
    assert entry.forward_s == pytest.approx(0.1, rel=0.3)  # without the first step, in which it takes 0.2
    assert entry.step_s == pytest.approx((ends[1] - ends[0]) / 4, rel=0.01)


@pytest.mark.parametrize("sync", [None, find_algorithm("all_reduce/ring")])
def test_emulated_ranks_take_turns_on_the_cores_that_fewer_kept_busy(sync, monkeypatch):
    """Measured in two processes on two cores, and predicted for four hosts of the same machine."""
    for module in (
        "simcomm.performance_models.emulated_model",
        "simcomm.performance_models.performance_model",
        "simcomm.performance_models.measured_times",
    ):
        monkeypatch.setattr(f"{module}.threads_per_rank", lambda ranks: 1)
    monkeypatch.setattr("simcomm.performance_models.emulated_model.cores", lambda: 2)
    training, hop = Training(sync), FittedLine(2e-5, 1e-9, 0.0)
    kind = training.model, training.dataset, training.batch_size
    phases = ComputePhases(0.1, 0.2, 0.05)
    compute = [ComputePoint(*kind, processes, 1, phases, 0.0) for processes in (1, 2)]
    overlap = OverlapPoint(
        *kind, 2, 1, [(1 << 20, 1.0)], [(1 << 20, 0.01)], overlap_slowdown=1.0, copies_s=0.01, broadcast_s=1e-3
    )
    found = Calibration(2, 1, one_way=hop, both_ways=hop, reduction=hop, compute=compute, overlap=[overlap])
    cluster = as_emulated(simcomm.star(4, "1 Gbit/s", "0 us"))
    trace = simcomm.train(training, cluster, steps=1, calibration=found)
    lengths = {span.name: span.end - span.begin for span in trace.spans if span.rank == 0}
    assert (lengths["forward"], lengths["optimizer"]) == pytest.approx((0.2 + (0.002 if sync is None else 0.0), 0.1))
    travels = simcomm.run("all_reduce/gloo", cluster, 1 << 20, calibration=found).elapsed
    assert lengths["backward"] == pytest.approx(0.4 + (travels + 0.02 if sync is None else 0.0))
