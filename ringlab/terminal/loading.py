"""A scenario that is loaded for a command, which says so where that takes a while."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringlab.shared.progress import TerminalProgress

if TYPE_CHECKING:
    from ringlab.scenario import Scenario


def load_scenario(reference: str | Path, *overrides: str) -> "Scenario":
    """Return what ``ringlab.scenario.load`` does; a network of very many links takes seconds to build."""
    from ringlab.scenario import load
    from ringlab.shared.progress import computing

    with computing(TerminalProgress(), f"reading {reference} and building its network"):
        return load(reference, *overrides)
