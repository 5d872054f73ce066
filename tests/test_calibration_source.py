"""Where a command finds its calibration, and when it makes one."""

import pytest

from ringlab.scenario import load
from ringlab.session import Session


@pytest.mark.parametrize("launcher", ["none", "mpirun"])
def test_ranks_that_a_launcher_started_do_not_calibrate(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would do it beside the others, whoever started them."""
    made: list[str] = []
    monkeypatch.setattr(Session, "find_or_calibrate", lambda *_, **__: made.append("made"))
    monkeypatch.setattr(Session, "find_calibration", lambda *_: made.append("found"))
    if launcher == "mpirun":
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
    scenario = load("quickstart", 'collective.algorithms=["auto"]')
    Session().calibration_to_choose(scenario)
    assert made == ["made" if launcher == "none" else "found"]
