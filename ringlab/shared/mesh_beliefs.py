"""What is believed of a user's cluster and framework: by a file of runs, by runs that are kept, or by none."""

from functools import cache
from pathlib import Path

from collectives.units import count
from simcomm.mesh_search.own_runs import belief_of, find_own_runs, read_own_runs
from simcomm.mesh_search.uncertainty import Belief, believe


def find_belief(gpu: str, framework: str, runs: Path | None = None) -> tuple[Belief, str | None]:
    """Return what is believed, and what to say of it: adapted to a file's runs, or to those kept of this GPU.

    Raises InputError for a file without a run that can be used.
    """
    if runs is not None:
        return _of_file(runs)
    kept = find_own_runs(gpu, framework)
    if kept is None:
        return believe(), None
    return kept.belief, f"Adapted to {kept.title}."


@cache
def _of_file(runs: Path) -> tuple[Belief, str]:
    found = read_own_runs(runs)
    rows = count(sum(len(group.rows) for group in found.groups), "run")
    reasons = "; ".join(found.refused)
    left = f"; {sum(found.refused.values())} left out: {reasons}" if found.refused else ""
    return belief_of(found.groups), f"Adapted to {rows} of {runs}{left}."
