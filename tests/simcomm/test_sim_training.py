"""A predicted training step: its compute phases plus the collective, with and without overlap."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import _compute_bucket_assignment_by_size  # type: ignore[attr-defined]
from torchvision.models import resnet18

import simcomm
from collectives import Algorithm, InputError, find_algorithm
from collectives.declaration import nccl
from collectives.records.calibration import Calibration, ComputePoint, FittedLine, OverlapPoint
from collectives.records.environment import cores, threads_per_rank
from collectives.records.spans import PHASES as SUMMARY_PHASES
from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, Gradient, fill_buckets
from collectives.training.workload import Buckets, ComputePhases, Training
from collectives.transport import TcpTerms, Transport
from ringlab.shared.figures import training_figures
from simcomm.cluster.calibrated import as_emulated
from simcomm.model.faults import NO_FAULTS, Faults, RankFault
from simcomm.performance_models.measured_times import overlap

PHASES = ComputePhases(forward=0.1, backward=0.2, optimizer=0.05)
STAR = simcomm.star(8, "10 Gbit/s", "5 us")
RING = find_algorithm("all_reduce/ring")


def job(sync: str, compute: ComputePhases | None = PHASES) -> Training:
    return Training(find_algorithm(f"all_reduce/{sync}"), compute=compute)


def line(per_byte: float) -> FittedLine:
    return FittedLine(0.0, per_byte, 0.0)


def calibration(ranks: int, compute: list[ComputePoint]) -> Calibration:
    return Calibration(ranks, threads_per_rank(ranks), line(1e-9), line(4e-9), line(0.0), compute=compute)


def point(processes: int, threads: int, phases: ComputePhases) -> ComputePoint:
    return ComputePoint("resnet18", "digits", 32, processes, threads, phases, 0.0)


def test_training_step_time_is_the_sum_of_phases_and_collective():
    figures = training_figures(simcomm.train(job("ring"), STAR), job("ring"))
    alone = simcomm.run(RING, STAR, job("ring").gradient_bytes).elapsed
    assert (figures.forward_s, figures.backward_s, figures.optimizer_s) == pytest.approx((0.1, 0.2, 0.05), rel=1e-9)
    assert figures.step_s == pytest.approx(0.35 + alone, rel=1e-9)
    assert figures.samples_per_s == pytest.approx(8 * 32 / (0.35 + alone), rel=1e-9)
    assert figures.scaling_efficiency == pytest.approx(0.35 / (0.35 + alone), rel=1e-9)


@pytest.mark.parametrize("changes", [{}, {"buckets": Buckets()}])
def test_training_step_begins_with_loading_its_batch(changes: dict[str, Any]):
    slow = Faults(ranks=(RankFault(3, slowdown=3.0),)) if not changes else NO_FAULTS
    training = replace(job("ring", replace(PHASES, loading=0.03)), **changes)
    without = replace(training, compute=PHASES)
    trace, plain = (simcomm.train(each, STAR, steps=2, faults=slow) for each in (training, without))
    figures, expected = training_figures(trace, training), training_figures(plain, without)
    ranks, slowest = (1.0, 1) if changes else (10 / 8, 3)  # rank 3 takes three times as long to load, too
    assert figures.loading_s == pytest.approx(0.03 * ranks) and expected.loading_s == 0
    assert (figures.forward_s, figures.backward_s) == pytest.approx((expected.forward_s, expected.backward_s))
    assert figures.step_s == pytest.approx(expected.step_s + slowest * 0.03)
    spans = [span for span in trace.spans if span.rank == 3 and not span.name.startswith("bucket")]
    assert [span.name for span in spans if span.name != "reduce"][:5] == [*SUMMARY_PHASES]
    assert all(span.end == other.begin for span, other in pairwise(spans) if other.name == "forward")
    assert trace.facts["single_rank_step_s"] == pytest.approx(0.38)


def test_training_uses_compute_times_measured_with_as_many_ranks():
    together, alone = ComputePhases(0.2, 0.4, 0.1), ComputePhases(0.1, 0.2, 0.05)
    threads = threads_per_rank(2)
    numbers = calibration(2, [point(2, threads, together), point(1, threads, alone)])
    trace = simcomm.train(job("ring", None), simcomm.this_machine(2), calibration=numbers)
    figures = training_figures(trace, job("ring"))
    sync = job("ring").gradient_bytes * 4e-9  # two halves of n bytes, both ways at once, twice
    assert figures.forward_s == pytest.approx(0.2, rel=1e-9)
    assert figures.sync_s == pytest.approx(sync, rel=1e-6)
    assert figures.scaling_efficiency == pytest.approx(0.35 / (0.7 + sync), rel=1e-6)


def test_training_on_separate_hosts_uses_all_cores_of_each():
    cluster = simcomm.star(4, "10 Gbit/s", "5 us", transport=None)
    trace = simcomm.train(job("ring", None), cluster, calibration=calibration(2, [point(1, cores(), PHASES)]))
    assert training_figures(trace, job("ring")).forward_s == pytest.approx(0.1, rel=1e-9)


def test_missing_calibration_is_rejected():
    with pytest.raises(InputError, match=r"compute was not measured for resnet18 on digits with batch size 32"):
        simcomm.train(job("ring", None), STAR, calibration=calibration(2, []))
    with pytest.raises(InputError, match="only supported on this machine"):
        simcomm.train(Training(None, compute=PHASES), STAR)
    with pytest.raises(InputError, match="for 2 ranks, but 3 ranks of this machine has 3"):
        simcomm.run("all_reduce/ring", simcomm.this_machine(3), 8, calibration=calibration(2, []))


@pytest.mark.parametrize("sync", [None, nccl("all_reduce")])
def test_ddp_and_nccl_sync_reject_faults_and_engines(sync: Algorithm | None):
    training, here = Training(sync, compute=PHASES), simcomm.this_machine(2)
    with pytest.raises(InputError, match=rf"'{training.sync_name}' .* does not support faults; remove"):
        simcomm.train(training, here, faults=Faults(ranks=(RankFault(0, slowdown=2),)))
    with pytest.raises(InputError, match="does not use engine 'simpy'; omit the engine"):
        simcomm.train(training, here, engine="simpy")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("emulated_model", "performance_model", "measured_times"):
        monkeypatch.setattr(f"simcomm.performance_models.{name}.threads_per_rank", lambda ranks: 1)
    monkeypatch.setattr("simcomm.performance_models.emulated_model.cores", lambda: 2)


def emulated_calibration(training: Training, **parts: Any) -> Calibration:
    hop, kind = FittedLine(2e-5, 1e-9, 0.0), (training.model_kind, training.data_kind, training.batch_size)
    compute = [ComputePoint(*kind, processes, 1, PHASES, 0.0) for processes in (1, 2)]
    return Calibration(2, 1, one_way=hop, both_ways=hop, reduction=hop, compute=compute, **parts)


def test_emulated_ranks_free_their_cores_while_waiting(two_cores):
    """All ranks begin at once on two cores. After the naive sync, each continues alone on a core."""
    training = Training(find_algorithm("all_reduce/naive"), model="my.py:build", parameters=100_000)
    numbers = emulated_calibration(training)
    transport = Transport("gloo-tcp", 2e-5, 1.0, 1e-9, tcp=TcpTerms(window=65e3, send_buffer=0.0))
    cluster = as_emulated(simcomm.star(4, "4 Mbit/s", "0 us", transport))
    with pytest.raises(InputError, match="engine 'simpy' does not support TCP"):
        simcomm.train(training, cluster, steps=2, calibration=numbers, engine="simpy")
    trace = simcomm.train(training, cluster, steps=2, calibration=numbers)
    lengths = {(span.name, span.rank, span.step): span.end - span.begin for span in trace.spans}
    assert [lengths["forward", rank, 0] for rank in range(4)] == pytest.approx([0.2] * 4)
    assert [lengths["backward", rank, 0] for rank in range(4)] == pytest.approx([0.4] * 4)
    assert [lengths["forward", rank, 1] for rank in (1, 2, 3)] == pytest.approx([0.1] * 3)
    emulated = simcomm.train(training, cluster, calibration=numbers)
    ends = [
        max(span.end for span in emulated.spans if (span.name, span.step) == ("optimizer", step)) for step in (0, 4)
    ]
    figures = training_figures(emulated, training)
    assert figures.forward_s == pytest.approx(0.1, rel=0.3)  # without the first step, in which it takes 0.2
    assert figures.step_s == pytest.approx((ends[1] - ends[0]) / 4, rel=0.01)


@pytest.mark.parametrize("sync", [None, RING])
def test_emulated_ranks_take_turns_on_the_measured_cores(sync, two_cores):
    """Compute was measured in two processes on two cores. The prediction is for four hosts on the same machine."""
    training = Training(sync)
    kind = training.model, training.dataset, training.batch_size
    overlap = OverlapPoint(
        *kind, 2, 1, [(1 << 20, 1.0)], [(1 << 20, 0.01)], overlap_slowdown=1.0, copies_s=0.01, broadcast_s=1e-3
    )
    numbers = emulated_calibration(training, overlap=[overlap])
    cluster = as_emulated(simcomm.star(4, "1 Gbit/s", "0 us"))
    trace = simcomm.train(training, cluster, steps=1, calibration=numbers)
    lengths = {span.name: span.end - span.begin for span in trace.spans if span.rank == 0}
    assert (lengths["forward"], lengths["optimizer"]) == pytest.approx((0.2 + (0.002 if sync is None else 0.0), 0.1))
    bucket = simcomm.run("all_reduce/gloo", cluster, 1 << 20, calibration=numbers).elapsed
    assert lengths["backward"] == pytest.approx(0.4 + (bucket + 0.02 if sync is None else 0.0))


OVERLAPPED = Training(RING, compute=ComputePhases(forward=0.02, backward=0.06, optimizer=0.001), buckets=Buckets())
SLOW = simcomm.star(4, "10 Gbit/s", "5 us")


def test_overlapped_step_ends_with_its_last_bucket():
    trace = simcomm.train(OVERLAPPED, SLOW, steps=2)
    figures, compute = training_figures(trace, OVERLAPPED), OVERLAPPED.compute
    buckets = fill_buckets(OVERLAPPED.gradients)
    seconds = [simcomm.run(RING, SLOW, bucket.nbytes, op="mean").elapsed for bucket in buckets]
    end = 0.0
    for bucket, alone in zip(buckets, seconds, strict=True):
        end = max(end, bucket.ready * compute.backward) + alone
    assert sum(bucket.nbytes for bucket in buckets) == OVERLAPPED.gradient_bytes and len(buckets) == 3
    assert figures.step_s == pytest.approx(compute.forward + max(end, compute.backward) + compute.optimizer)
    assert trace.title == "training/ring[overlap]" and figures.backward_s == pytest.approx(compute.backward)
    exposed = pytest.approx(max(end, compute.backward) - compute.backward)
    assert (figures.sync_s, figures.exposed_s) == (exposed, exposed)
    ddp = replace(OVERLAPPED, buckets=Buckets(hook="ddp"))
    by_torch = training_figures(simcomm.train(ddp, SLOW, steps=2), ddp)
    assert (by_torch.sync_s, by_torch.exposed_s, by_torch.step_s) == (0.0, exposed, pytest.approx(figures.step_s))
    plain = training_figures(simcomm.train(replace(OVERLAPPED, buckets=None), SLOW), OVERLAPPED)
    assert compute.total < figures.step_s < plain.step_s < compute.total + sum(seconds) * 1.001


def test_single_bucket_does_not_overlap_with_backward():
    training = replace(OVERLAPPED, buckets=Buckets(mb=1000), model="my.py:build", parameters=200_000)
    figures = training_figures(simcomm.train(training, SLOW, steps=2), training)
    alone = simcomm.run(RING, SLOW, 800_000, op="mean").elapsed
    assert figures.step_s == pytest.approx(OVERLAPPED.compute.total + alone)


def test_overlap_rejects_engine_and_unknown_model_size():
    with pytest.raises(InputError, match="predicted by formula, without simulated messages"):
        simcomm.train(OVERLAPPED, SLOW, engine="simpy")
    with pytest.raises(InputError, match=r"a prediction does not execute model 'my.py:build', so set its number"):
        simcomm.train(replace(OVERLAPPED, model="my.py:build"), SLOW)


def test_gradient_buckets_match_torch():
    parameters = list(reversed(list(resnet18(num_classes=10).parameters())))
    by_torch, _ = _compute_bucket_assignment_by_size(parameters, [FIRST_BYTES, BUCKET_BYTES])
    expected = [sum(parameters[index].nbytes for index in bucket) for bucket in by_torch]
    assert [bucket.nbytes for bucket in fill_buckets([Gradient(p.nbytes, 0.0) for p in parameters])] == expected


def test_overlapped_step_is_longer_with_more_slowdown():
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=0.0).finished == pytest.approx(1.1)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.0).finished == pytest.approx(1.4)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.5).finished == pytest.approx(1.0 + 0.45 + 0.1)


shares = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2)), max_size=6)


@given(backward=st.floats(0.01, 10), buckets=shares, slowdown=st.floats(0, 2))
def test_overlap_never_shortens_compute_or_sync(backward: float, buckets: list[tuple[float, float]], slowdown: float):
    ready = sorted(share for share, _ in buckets)
    seconds = [alone for _, alone in buckets]
    timeline = overlap(backward, ready, seconds, slowdown)
    assert backward - 1e-9 <= timeline.computed <= backward + slowdown * sum(seconds) + 1e-9
    assert timeline.finished <= backward + max(1.0, slowdown) * sum(seconds) + 1e-9
    ends = [0.0, *(end for _, end in timeline.buckets)]
    for before, (begin, end), alone in zip(ends, timeline.buckets, seconds, strict=False):
        assert begin >= before - 1e-12 and end - begin >= alone - 1e-9
