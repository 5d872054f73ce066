"""The step on many GPUs: buckets as torch fills them, their timeline in closed form, and limits that need no data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import _compute_bucket_assignment_by_size  # type: ignore[attr-defined]
from torchvision.models import resnet18

from benchmarks.studies.scaling_columns import (
    BACKWARD_SHARE,
    SeriesCase,
    bucket_seconds,
    make_cases,
    slowdown_of,
    solve_alone,
    step_times,
)
from collectives.errors import InputError
from collectives.training.gradients import BUCKET_BYTES, FIRST_BYTES, Gradient, fill_buckets
from collectives.training.parallelism import Parallelism
from planner.mesh.terms import expected_maximum, read_parameters
from planner.scaling import TrainingJob, find_model, predict_rate
from planner.scaling.descriptions import NEVER, find_node, find_scaling_gpu
from simcomm.timeline import overlap

JOB = TrainingJob(find_model("BERT-large-384"), 16.0)
CASE = SeriesCase(JOB, find_scaling_gpu("V100"), find_node("dlperf"), 16, 2)


@settings(deadline=None, max_examples=40)
@given(
    rate=st.floats(1.0, 1e4),
    gpus=st.sampled_from([(2, 1), (8, 1), (16, 2), (256, 32)]),
    bucket_mb=st.sampled_from([1.0, 25.0, 400.0]),
    node=st.sampled_from(["dlperf", "workstation", "k80", "h100-sxm"]),
)
def test_buckets_overlap_as_the_timeline_of_overlap_says(
    rate: float, gpus: tuple[int, int], bucket_mb: float, node: str
) -> None:
    """What is exposed and what is stolen, by the closed form and by the timeline, bucket after bucket."""
    values = read_parameters()
    job = replace(JOB, parallelism=Parallelism(bucket_mb=bucket_mb))
    cases = make_cases([CASE._replace(job=job, gpus=gpus[0], nodes=gpus[1], node=find_node(node))])
    alone = cases.batch / rate
    times = step_times(cases, values, alone)
    seconds = bucket_seconds(cases, values)[0]
    there = seconds > 0
    slowdown = float(slowdown_of(cases, values)[0])
    backward = BACKWARD_SHARE * float(alone[0])
    line = overlap(backward, list(cases.ready[0][there]), list(seconds[there]), slowdown)
    assert times.slowdown[0] == pytest.approx(line.computed - backward, rel=1e-6, abs=1e-9 * backward)
    assert times.exposed[0] == pytest.approx(line.finished - line.computed, rel=1e-6, abs=1e-9 * backward)


def test_after_backward_everything_is_exposed_and_without_sync_nothing() -> None:
    values = read_parameters()
    strategies = (Parallelism(overlap=False), Parallelism(sync_every=NEVER))
    cases = [CASE._replace(job=replace(JOB, parallelism=parallelism)) for parallelism in strategies]
    columns = make_cases(cases)
    times = step_times(columns, values, np.array([1.0, 1.0]))
    whole = bucket_seconds(columns, values).sum(axis=1)
    assert (times.exposed.tolist(), times.slowdown.tolist()) == ([whole[0], 0.0], [0.0, 0.0])
    assert times.copies[1] == 0.0


def test_a_step_waits_for_the_other_processes_of_its_node_by_its_cores() -> None:
    """36 core-milliseconds of each of 7 others on 24 cores; nothing of one GPU, or of GPUs that do not wait."""
    values = read_parameters().changed({"process_ms": 36.0})
    cases = [CASE._replace(gpus=8, nodes=1), CASE, CASE._replace(gpus=1, nodes=1), CASE._replace(gpus=2, nodes=2)]
    columns = make_cases([*cases, CASE._replace(job=replace(JOB, parallelism=Parallelism(sync_every=NEVER)))])
    times = step_times(columns, values, np.ones(5))
    assert times.processes.tolist() == pytest.approx([0.0105, 0.0105, 0.0, 0.0, 0.0])


def test_the_bytes_of_a_ring_travel_at_the_slowest_link() -> None:
    """Two nodes of eight V100: 15/8 of the gradients through the NIC of 12.5 GB/s."""
    values = read_parameters().changed({"eff_network": 1.0, "latency_us": 1e-9})
    columns = make_cases([CASE])
    assert bucket_seconds(columns, values).sum() == pytest.approx(
        4 * find_model("BERT-large-384").parameters * 15 / 8 / 12.5e9
    )


def test_one_gpu_takes_what_it_takes() -> None:
    found = predict_rate(JOB, "workstation", 1, 1, 10.0, gpu="RTX 4090")
    assert (found.rate, found.efficiency) == (pytest.approx(10.0), pytest.approx(1.0))
    assert found.interval(0.5)[0] > 9.9


@pytest.mark.parametrize("gpus, nodes", [(8, 1), (16, 2)])
def test_the_step_of_one_gpu_is_found_again_from_that_of_several(gpus: int, nodes: int) -> None:
    values = read_parameters()
    columns = make_cases([CASE._replace(gpus=gpus, nodes=nodes)])
    total = step_times(columns, values, np.array([0.7])).total
    assert solve_alone(columns, values, total)[0] == pytest.approx(0.7, rel=1e-6)


def test_intervals_nest_and_hold_the_rate() -> None:
    found = predict_rate(TrainingJob(find_model("VGG16"), 64), "p3dn.24xlarge", 16, 2, 400.0)
    bounds = [found.interval(coverage) for coverage in (0.2, 0.5, 0.8, 0.9, 0.95)]
    lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
    assert lows == sorted(lows, reverse=True) and highs == sorted(highs)
    assert lows[0] < found.rate < highs[0]


def test_parts_add_up_to_the_step_and_name_what_limits_it() -> None:
    found = predict_rate(TrainingJob(find_model("VGG16"), 16), "workstation", 2, 1, 400.0, gpu="RTX 4090")
    assert found.parts.total == pytest.approx(2 * 16 / found.rate)
    assert found.bottleneck[0] == "sync"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((JOB, "workstation", 2, 1, 1.0), "gpu is missing"),
        ((JOB, "dgx-h100", 2, 3, 1.0), "2 GPUs on 3 nodes"),
        ((JOB, "rtx4090-pcie-4x", 8, 1, 1.0), "8 GPUs on 1 node; rtx4090-pcie-4x has 4 GPUs, so give 4 at most"),
        ((JOB, "dgx-h100", 17, 2, 1.0), "17 GPUs on 2 nodes; .* 16 at most, or more nodes"),
        ((JOB, "dgx-h100", 2, 1, 0.0), "rate is 0"),
        ((JOB, "dgx-h1000", 2, 1, 1.0), "dgx-h1000"),
    ],
)
def test_what_cannot_be_predicted_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict_rate(*arguments)  # type: ignore[arg-type]


def test_the_greatest_of_draws_of_a_normal_distribution() -> None:
    """Harter 1961, expected values of order statistics."""
    assert [round(expected_maximum(n), 4) for n in (2, 3, 4, 8, 100)] == [0.5642, 0.8463, 1.0294, 1.4236, 2.5076]


def test_buckets_are_filled_by_torchs_rule():
    parameters = list(reversed(list(resnet18(num_classes=10).parameters())))
    by_torch, _ = _compute_bucket_assignment_by_size(parameters, [FIRST_BYTES, BUCKET_BYTES])
    expected = [sum(parameters[index].nbytes for index in bucket) for bucket in by_torch]
    assert [bucket.nbytes for bucket in fill_buckets([Gradient(p.nbytes, 0.0) for p in parameters])] == expected


def test_what_is_free_is_hidden_and_what_slows_fully_is_not():
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=0.0).finished == pytest.approx(1.1)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.0).finished == pytest.approx(1.4)
    assert overlap(1.0, [0.2, 1.0], [0.3, 0.1], slowdown=1.5).finished == pytest.approx(1.0 + 0.45 + 0.1)


shares = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2)), max_size=6)


@given(backward=st.floats(0.01, 10), buckets=shares, slowdown=st.floats(0, 2))
def test_nothing_is_lost_and_nothing_gained(backward: float, buckets: list[tuple[float, float]], slowdown: float):
    ready = sorted(share for share, _ in buckets)
    seconds = [alone for _, alone in buckets]
    found = overlap(backward, ready, seconds, slowdown)
    assert backward - 1e-9 <= found.computed <= backward + slowdown * sum(seconds) + 1e-9
    assert found.finished <= backward + max(1.0, slowdown) * sum(seconds) + 1e-9
    ends = [0.0, *(end for _, end in found.buckets)]
    for before, (begin, end), alone in zip(ends, found.buckets, seconds, strict=False):
        assert begin >= before - 1e-12 and end - begin >= alone - 1e-9
