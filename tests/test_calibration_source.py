"""Where a command finds its calibration, and when it makes one."""

import pytest

from ringlab.answers import calibration_source
from ringlab.answers.calibration_source import calibration_to_choose
from ringlab.answers.progress import NoProgress
from ringlab.scenario import load


@pytest.mark.parametrize("launcher", ["none", "mpirun"])
def test_ranks_that_a_launcher_started_do_not_calibrate(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would do it beside the others, whoever started them."""
    made: list[str] = []
    monkeypatch.setattr(calibration_source, "find_or_calibrate", lambda *_, **__: made.append("made"))
    monkeypatch.setattr(calibration_source, "find_calibration", lambda *_: made.append("found"))
    if launcher == "mpirun":
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
    scenario = load("quickstart", 'collective.algorithms=["auto"]')
    calibration_to_choose(scenario, timeout=1.0, progress=NoProgress())
    assert made == ["made" if launcher == "none" else "found"]
