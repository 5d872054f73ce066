"""The scenario that a picture is of, where a user names a file of algorithms in place of one, or beside it."""

import json
from collections.abc import Sequence
from pathlib import Path

from collectives.catalogue import load_file
from collectives.errors import InputError
from ringlab.session import load_scenario
from scenarios import LoadedScenario

USUAL = "star8"  # the network on which a user's file is drawn where no scenario is named


def load_drawn(source: str, algorithm: str | None, set_keys: Sequence[str] = ()) -> tuple[LoadedScenario, str | None]:
    """Return the scenario to draw, and which of its algorithms; of a user's ``FILE.py[:NAME]`` it is a shipped one.

    An algorithm in a file that the scenario does not name takes the place of those that it has. Raises InputError.
    """
    if names_program(source):
        if algorithm is not None:
            raise InputError(f"--algorithm {algorithm} beside {source}; name the algorithm as FILE.py:NAME instead")
        return _with_programs(USUAL, source, set_keys), None
    scenario = load_scenario(source, *set_keys)
    if algorithm is None or not names_program(algorithm):
        return scenario, algorithm
    programs = scenario.collective.programs if scenario.collective else ()
    if algorithm.rpartition(".py:")[2] in [one.name for one in programs if one.source]:
        return scenario, algorithm
    return _with_programs(source, algorithm, set_keys), None


def names_program(reference: str) -> bool:
    """Return whether a reference is a file of Python, or a name in one.

    >>> names_program("my.py"), names_program("my.py:ring"), names_program("star8")
    (True, True, False)
    """
    return reference.endswith(".py") or ".py:" in reference


def _with_programs(scenario: str, reference: str, set_keys: Sequence[str]) -> LoadedScenario:
    """Return a scenario whose algorithms are those of a file, or one of them."""
    file, _, name = reference.partition(".py:")
    path = Path(f"{file}.py" if name else reference)
    found = [one for one in load_file(path) if name in ("", one.name)] or load_file(path)
    collectives = {one.spec.name for one in found}
    if len(collectives) > 1 or (name and name not in (one.name for one in found)):
        names = ", ".join(f"{path}:{one.name}" for one in found)
        raise InputError(f"{reference}: name one of its algorithms; there are {names}")
    keys = {
        "title": f"{path.name} on eight hosts of one switch" if scenario == USUAL and not set_keys else path.name,
        "collective.name": found[0].spec.name,
        "collective.algorithms": [f"{path.absolute()}:{one.name}" for one in found],
    }
    return load_scenario(scenario, *(f"{key}={json.dumps(value)}" for key, value in keys.items()), *set_keys)
