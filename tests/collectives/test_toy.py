"""Check the published toy: both ranks print 1.4, on real and on simulated ranks."""

import runpy
from pathlib import Path

import pytest

TOY = Path(__file__).parents[2] / "examples" / "toy.py"


def test_toy_ranks_agree_real_and_simulated(capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(TOY), run_name="__main__")
    assert capfd.readouterr().out.splitlines() == [
        "real rank 0: 1.4",
        "real rank 1: 1.4",
        "simulated rank 0: 1.4",
        "simulated rank 1: 1.4",
    ]
