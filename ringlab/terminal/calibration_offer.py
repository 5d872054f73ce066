"""The offer to calibrate, where a prediction needs what was not measured yet."""

import sys
from typing import TYPE_CHECKING

import typer

from collectives.errors import InputError
from ringlab.session import Session
from ringlab.shared.progress import TerminalProgress

if TYPE_CHECKING:
    from ringlab.scenario import Scenario

ABOUT = "It takes from half a minute to a few."


def offer_calibration(scenario: "Scenario", name: str) -> None:
    """Calibrate what the scenario needs and lacks, if a person at the terminal agrees.

    A machine that is not calm is said to be so, and its calibration used all the same: one command is enough. Raises
    InputError, which names that command, where nobody is there to ask or the answer is no.
    """
    if Session().is_calibrated(scenario):
        return
    missing = f"{name}: this machine is not calibrated for what this scenario needs"
    if sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(f"{missing}. {ABOUT} Now?", default=True, err=True):
        scenario.calibrate(progress=TerminalProgress(), accept_noise=True)
        return
    raise InputError(f"{missing}; `ringlab calibrate {name}` does it")
