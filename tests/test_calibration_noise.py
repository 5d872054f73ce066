"""A calibration made on a busy machine says so."""

from dataclasses import replace

import pytest

from collectives.errors import RunFailed
from collectives.records.calibration import Calibration, ComputePoint, Line
from collectives.workload import ComputePhases
from ringlab.answers import calibration_source
from ringlab.answers.calibration_noise import find_noise

CALM = Line(1e-5, 1e-9, 0.2)
ALONE = ComputePoint("resnet18", "digits", 32, 1, 1, ComputePhases(0.035, 0.1, 0.01), 0.1)
GOOD = Calibration(2, 1, one_way=CALM, both_ways=CALM, reduction=CALM, compute=[ALONE, replace(ALONE, processes=2)])
SLOW = replace(ALONE, processes=2, phases=ComputePhases(0.171, 0.1, 0.01))


def test_a_calm_machine_has_none():
    assert find_noise(GOOD) == []


@pytest.mark.parametrize("line", ["one_way", "both_ways", "reduction"])
def test_points_far_off_the_line(line: str):
    (found,) = find_noise(replace(GOOD, **{line: Line(1e-5, 1e-9, 0.21)}))
    assert "21% off the line" in found


def test_phases_that_contradict_each_other(monkeypatch):
    monkeypatch.setattr("ringlab.answers.calibration_noise.cores", lambda: 2)
    found = find_noise(replace(GOOD, compute=[SLOW, ALONE]))
    assert found == ["forward takes 171 ms in 2 processes and 35 ms in one"]


def test_it_is_refused_and_not_kept_unless_accepted(monkeypatch, tmp_path):
    noisy = replace(GOOD, one_way=Line(1e-5, 1e-9, 0.5))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("realcomm.calibrate", lambda *_, **__: noisy)
    with pytest.raises(RunFailed, match=r"50% off the line through all\. Nothing is kept: .* --accept-noise"):
        calibration_source.calibrate(2)
    assert [*tmp_path.rglob("*.json")] == []
    assert calibration_source.calibrate(2, accept_noise=True).file
    assert len([*tmp_path.rglob("*.json")]) == 1
