"""Calibration: lines fitted to what was measured, in the settings that predictions ask for."""

from importlib import import_module
from pathlib import Path

import pytest
import real_programs
from hypothesis import given
from hypothesis import strategies as st

from collectives.records.calibration import Calibration, ComputePoint, read_calibration
from collectives.records.environment import cores, threads_per_rank
from collectives.step import Kind
from collectives.workload import ComputePhases, Training
from realcomm import calibrate
from realcomm.measuring import probes
from realcomm.measuring.calibration import NO_MESSAGES, fit_line
from realcomm.measuring.probes import IN_A_ROW


@pytest.fixture(autouse=True)
def small_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("realcomm.measuring.calibration"), "_worker", real_programs.probe_small)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_calibration_holds_lines_through_what_was_measured(ranks: int, tmp_path: Path):
    heard = []
    found = calibrate(ranks, timeout=60, progress=lambda *news: heard.append(news))
    assert (found.ranks, found.threads, found.backend) == (ranks, threads_per_rank(ranks), "gloo")
    for line in (found.one_way, found.both_ways, found.reduction):
        assert len(line.points) == 3 and all(seconds > 0 for _, seconds in line.points)
        assert line == fit_line(line.points)
    assert [nbytes for nbytes, _ in found.one_way.points] == [1024, 4096, 65536]
    assert heard[0] == (0, 0, 9, "reduction, 64 KiB")
    found.write(tmp_path / "calibration.json")
    assert read_calibration(tmp_path / "calibration.json") == found


def test_one_rank_sends_nothing():
    found = calibrate(1)
    assert found.one_way == found.both_ways == NO_MESSAGES
    assert len(found.reduction.points) == 3


def test_the_probe_sends_what_it_says():
    first, second, third = (real_programs.probed_messages(rank, 3) for rank in range(3))
    there, back = (Kind.SEND, 1), (Kind.RECV, 1)
    assert first["one_way"] == [there, back] * (IN_A_ROW // 2)
    assert second["one_way"] == [(Kind.RECV, 0), (Kind.SEND, 0)] * (IN_A_ROW // 2)
    assert third["one_way"] == []
    assert first["both_ways"] == [(Kind.SEND, 1), (Kind.RECV, 2)] * IN_A_ROW
    assert third["both_ways"] == [(Kind.SEND, 0), (Kind.RECV, 1)] * IN_A_ROW
    assert first["reduction"] == second["reduction"] == [(Kind.REDUCE, -1)] * IN_A_ROW


def test_a_message_concerns_those_who_send_and_receive_it():
    ranks = [[(0.0, 2.0)], [(0.5, 2.5)], [(3.0, 9.0)]]
    assert probes.seconds_of(probes.one_way, ranks) == [2.5 / IN_A_ROW]
    assert probes.seconds_of(probes.both_ways, ranks) == [9.0 / IN_A_ROW]
    assert probes.seconds_of(probes.reduction, ranks) == [6.0 / IN_A_ROW]


def settings_of(ranks: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """For which processes and threads a calibration asks for the phases of two trainings."""
    asked = []

    def measure_phases(training, processes, threads, timeout, progress, backend) -> ComputePoint:
        asked.append((training.dataset, processes, threads))
        return ComputePoint("resnet18", training.dataset, 32, processes, threads, ComputePhases(1, 2, 3), 0.0)

    monkeypatch.setattr("realcomm.training.compute_phases.measure_phases", measure_phases)
    found = calibrate(ranks, [Training(None), Training(None, dataset="cifar10")])
    assert [(point.dataset, point.processes, point.threads) for point in found.compute] == asked
    assert found.phases(Training(None), ranks, threads_per_rank(ranks)) == ComputePhases(1, 2, 3)
    return asked


def test_trainings_are_timed_together_and_alone_without_duplicates(monkeypatch: pytest.MonkeyPatch):
    alone = [("digits", 1, cores())]
    assert [one for one in settings_of(1, monkeypatch) if one[0] == "digits"] == alone
    threads = threads_per_rank(2)
    together = dict.fromkeys([("digits", 2, threads), ("digits", 1, threads), *alone])
    assert settings_of(2, monkeypatch)[: len(together)] == [*together]


nanoseconds = st.integers(0, 10**6).map(lambda n: n * 1e-9)


@given(fixed=nanoseconds, per_byte=st.integers(1, 10**4).map(lambda n: n * 1e-13))
def test_points_on_a_line_give_that_line(fixed: float, per_byte: float):
    line = fit_line([(4**k, fixed + per_byte * 4**k) for k in range(5, 13)])
    assert line.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-12)
    assert line.per_byte == pytest.approx(per_byte, rel=1e-6)
    assert line.worst_residual < 1e-6


def test_a_line_is_never_negative_and_says_how_bad_it_is():
    line = fit_line([(1000, 1e-6), (2000, 4e-6), (4000, 16e-6)])
    assert line.fixed == 0.0 and line.per_byte > 0
    worst = max(abs(line.per_byte * nbytes / seconds - 1) for nbytes, seconds in line.points)
    assert line.worst_residual == pytest.approx(worst)


def test_small_and_large_messages_count_alike():
    line = fit_line([(1000, 2e-6), (1000, 1e-6), (10**9, 2.0), (10**9, 1.0)])
    # least squares of relative errors: 6/5 of the less
    assert line.fixed + 1000 * line.per_byte == pytest.approx(1.2e-6)
    assert line.fixed + 10**9 * line.per_byte == pytest.approx(1.2)


def test_a_calibration_predicts_with_what_it_found():
    found: Calibration = calibrate(2)
    transport = found.transport(goodput=1.0)
    assert (transport.overhead, transport.gamma) == (found.one_way.fixed, found.reduction.per_byte)
