"""Calibration: blocks, the times of message classes from them, and a launch that calibrates and runs in turn."""

from dataclasses import replace

import pytest
import real_programs

import simcomm
from collectives import find_algorithm
from collectives.call import make_call
from collectives.costs.message_classes import EXCHANGE, FAN_IN, FAN_OUT, RELAY, MessageClass, Probe
from collectives.records.calibration import PARTS, MessageCurve
from collectives.records.environment import threads_per_rank
from collectives.training.gradients import Gradient
from collectives.training.workload import ComputePhases, Training
from realcomm.calibration.blocks import (
    Block,
    BlockStep,
    OverlapTimes,
    RankBlock,
    Setting,
    TrainingKind,
    fit_line,
    make_calibration,
)
from realcomm.calibration.calibration import LINE_SIZES, make_plan, run_in_turns
from ringlab.scenario import load
from ringlab.session import Session
from ringlab.shared.figures import training_figures

RING, NAIVE = find_algorithm("all_reduce/ring"), find_algorithm("all_reduce/naive")
JOB = Training(RING)
KIND = TrainingKind.of(JOB)
TWO = Setting(ranks=2, threads=threads_per_rank(2))


def block(factor: float = 1.0) -> Block:
    """Two ranks' measurements in a block: a relay of 4 KiB takes 500 us, and 100 us more for each further message."""
    ranks = []
    for rank in range(2):
        probes = {
            Probe(RELAY, 1, reduces, 4096, length): [(rank * 1e-5, factor * (4e-4 + length * 1e-4 + reduces * 1e-4))]
            for reduces in (False, True)
            for length in (1, 3)
        }
        ranks.append(RankBlock(probes, {4096: [factor * 1e-6 * (rank + 1)]}))
    return ranks


def training_block(late: float = 0.01) -> Block:
    """Two ranks, the second of which computes ``late`` seconds longer before it exchanges messages for 0.02 s."""
    probes = [Probe(EXCHANGE, 1, True, JOB.gradient_bytes // 2, 1)]
    probes += [Probe(EXCHANGE, 1, False, JOB.gradient_bytes // 2, length) for length in (1, 3)]
    ranks = [
        RankBlock(steps={KIND: [
            BlockStep(
                ComputePhases(0.1, 0.2 + rank * late, 0.03, loading=0.02),
                probe, 0.3 + rank * late, 0.3 + late + 0.02 * probe.length, 0.004,
            )
            for probe in probes
        ]})
        for rank in range(2)
    ]  # fmt: skip
    return ranks


def test_later_message_of_a_chain_takes_less_than_the_first():
    calibration = make_calibration([block()], TWO)
    first, later = (MessageClass(RELAY, 1, False, 4096, is_first) for is_first in (True, False))
    assert calibration.message_seconds(first) == pytest.approx(5e-4)
    assert calibration.message_seconds(later) == pytest.approx(1e-4)
    assert calibration.message_seconds(first._replace(reduces=True)) == pytest.approx(6e-4)
    assert calibration.reduction.points == [(4096, pytest.approx(2e-6))]  # the slowest rank's
    trace = simcomm.run(NAIVE, simcomm.this_machine(2), 4096, calibration=calibration)
    assert trace.elapsed == pytest.approx(6e-4 + 1e-4), "a first and a later message"
    assert (trace.method, len(trace.messages)) == ("message classes", 2)


def test_predicted_sync_includes_the_wait_for_the_slowest_rank():
    calibration = make_calibration([training_block(late=0.01)], TWO)
    (point,) = calibration.compute
    assert point.wait_s == pytest.approx(0.005)  # the first rank waits 10 ms, the second none
    entry = training_figures(simcomm.train(JOB, simcomm.this_machine(2), calibration=_with_lone(calibration)), JOB)
    assert entry.forward_s == pytest.approx(0.1)
    assert entry.backward_s == pytest.approx(0.205)
    assert entry.sync_s == pytest.approx(0.02 + 0.02 + 0.004 + 0.005)  # two messages, the division, waiting
    assert entry.loading_s == pytest.approx(0.02)
    assert entry.step_s == pytest.approx(0.02 + 0.1 + 0.21 + 0.044 + 0.03)


def _with_lone(calibration):
    (point,) = calibration.compute
    return replace(calibration, compute=[point, replace(point, processes=1)])


def test_ddp_prediction_has_overlapped_and_exposed_parts():
    """Backward takes 0.2 s. Two buckets of 0.02 s, one of them full at the end, slow it by half of their time."""
    pieces = OverlapTimes(
        gradients=[Gradient(30 << 20, 0.5), Gradient(4 << 20, 1.0)], sizes=[30 << 20, 4 << 20], backward=0.2,
        overlapped=0.22, all_reduce=[(1.0, 1.02), (1.02, 1.04)], copies=(0.0, 0.01), broadcast=(0.0, 0.001),
    )  # fmt: skip
    measured = training_block(late=0.0)
    for rank in measured:
        rank.overlap[KIND] = [pieces]
    calibration = _with_lone(make_calibration([measured], TWO))
    assert calibration.overlap[0].overlap_slowdown == pytest.approx(0.5)
    job = Training(None)
    entry = training_figures(simcomm.train(job, simcomm.this_machine(2), calibration=calibration), job)
    assert entry.forward_s == pytest.approx(0.1 + 0.001)
    assert entry.backward_s == pytest.approx(0.2 + 0.5 * 0.02 + 0.02 + 0.01)
    assert entry.sync_s == 0.0
    assert entry.loading_s == pytest.approx(0.02)
    assert entry.step_s == pytest.approx(0.02 + 0.101 + 0.24 + 0.03)


@pytest.mark.usefixtures("brief_calibration")
def test_measured_run_does_not_change_its_prediction():
    turns = run_in_turns([make_call(NAIVE, 2, 4096)], [], simcomm.this_machine(2), timeout=300)
    (trace,) = turns.collectives
    assert len(turns.calibration) == PARTS and trace.facts["wrong"] == 0 and trace.facts["repetitions"] >= PARTS - 1
    before = make_calibration(turns.calibration, turns.setting)
    slow = turns._replace(collectives=[replace(trace, elapsed=1e3)])
    after = make_calibration(slow.calibration, slow.setting)
    assert replace(after, created=before.created, parts=[]) == replace(before, parts=[])
    assert len(before.parts) == 4
    assert 1e-5 < simcomm.run(NAIVE, simcomm.this_machine(2), 4096, calibration=before).elapsed < 1.0


def test_calibration_measures_the_message_sizes_of_the_calls():
    plan = make_plan(2, [make_call(name, 2, 1 << 20) for name in (RING, NAIVE)], [JOB, Training(NAIVE)])
    assert {probe.nbytes for probe in plan.probes} == {1 << 19, 1 << 20, *LINE_SIZES}
    assert not plan.measurements
    (training,) = plan.trainings
    assert {probe.nbytes for probe in training.probes} == {JOB.gradient_bytes, JOB.gradient_bytes // 2}


@pytest.mark.parametrize(
    "probe, rank, does",
    [
        (Probe(RELAY, 1, False, 4, 3), 0, ["send 1", "recv 2"]),
        (Probe(EXCHANGE, 1, True, 4, 2), 0, ["send 1 recv_reduce 2"] * 2),
        (Probe(EXCHANGE, 2, False, 4, 1), 1, ["send 2 send 0 recv 0 recv 2"]),
        (Probe(FAN_IN, 2, True, 4, 2), 0, ["recv_reduce 1", "recv_reduce 2", "send 1", "send 2"]),
        (Probe(FAN_IN, 2, True, 4, 2), 2, ["send 0", "recv_reduce 0"]),
        (Probe(FAN_OUT, 2, False, 4, 1), 2, ["recv 0"]),
    ],
)
def test_probe_ranks_run_the_operations_of_its_pattern(probe: Probe, rank: int, does: list[str]):
    assert real_programs.probed_messages(probe, rank, 3) == does


def test_unmeasured_message_sizes_follow_the_measured_curve():
    calibration = make_calibration([block()], TWO)
    wide = MessageCurve(EXCHANGE, 1, False, False, [(1000, 1e-4), (2000, 3e-4)])
    calibration = replace(calibration, message_classes=[*calibration.message_classes, wide])
    for width, nbytes, seconds in ((1, 1500, 2e-4), (3, 1500, 6e-4), (1, 3000, 5e-4)):  # beyond, at the last slope
        message_class = MessageClass(EXCHANGE, width, False, nbytes, False)
        assert calibration.message_seconds(message_class) == pytest.approx(seconds)


def test_line_fit_minimizes_relative_errors_and_is_not_negative():
    line = fit_line([(1000, 1e-6), (2000, 4e-6), (4000, 16e-6)])
    assert line.fixed == 0.0 and line.per_byte > 0
    worst = max(abs(line.per_byte * nbytes / seconds - 1) for nbytes, seconds in line.points)
    assert line.worst_residual == pytest.approx(worst)
    line = fit_line([(1000, 2e-6), (1000, 1e-6), (10**9, 2.0), (10**9, 1.0)])
    # least squares of relative errors: 6/5 of the less
    assert line.fixed + 1000 * line.per_byte == pytest.approx(1.2e-6)
    assert line.fixed + 10**9 * line.per_byte == pytest.approx(1.2)


@pytest.mark.parametrize(("variables", "expected"), [({}, "made"), ({"RANK": "1", "WORLD_SIZE": "2"}, "found")])
def test_ranks_started_by_a_launcher_do_not_calibrate(variables: dict[str, str], expected: str, monkeypatch):
    """Each rank would calibrate while the others do."""
    made: list[str] = []
    monkeypatch.setattr(Session, "find_or_calibrate", lambda *_, **__: made.append("made"))
    monkeypatch.setattr(Session, "find_calibration", lambda *_: made.append("found"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    Session().calibration_to_choose(load("quickstart", 'collective.algorithms=["auto"]'))
    assert made == [expected]
