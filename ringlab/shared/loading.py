"""A scenario that is loaded for a command, which says so where that takes a while."""

from pathlib import Path

import scenarios
from ringlab.shared.progress import TerminalProgress, computing


def load_scenario(reference: str | Path, *overrides: str) -> scenarios.LoadedScenario:
    """Return what ``scenarios.load`` does; a network of very many links takes seconds to build."""
    with computing(TerminalProgress(), f"reading {reference} and building its network"):
        return scenarios.load(reference, overrides)
