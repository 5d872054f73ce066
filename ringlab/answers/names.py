"""``Names``: the algorithms, presets and scenarios that there are."""

import tomllib
from dataclasses import dataclass

from collectives.catalogue import library
from ringlab.answers.record import Record
from scenarios import shipped
from simcomm.cluster.presets import machine_entries

PRESETS = {"this-machine": "processes of this machine, joined by its memory; needs a calibration to predict"}


@dataclass(frozen=True)
class Name(Record):
    """Something that has a name, and a line about it."""

    name: str
    about: str


@dataclass(frozen=True)
class Names(Record):
    """What ``list`` found."""

    algorithms: tuple[Name, ...]
    presets: tuple[Name, ...]
    scenarios: tuple[Name, ...]

    def __repr__(self) -> str:
        return (
            f"<Names: {len(self.algorithms)} algorithms, {len(self.presets)} presets, {len(self.scenarios)} scenarios>"
        )


def list_names() -> Names:
    """Return names by kind, each with a line about it: an algorithm's docstring, a scenario's title.

    >>> [one.name for one in list_names().scenarios][:3]
    ['dgx-h100', 'quickstart', 'rtx4090-4x']
    """
    machine_titles = {name: entry["title"] for name, entry in machine_entries().items()}
    return Names(
        algorithms=tuple(
            Name(name, (found.function.__doc__ or "").partition("\n")[0]) for name, found in library().items()
        ),
        presets=tuple(Name(name, about) for name, about in (PRESETS | machine_titles).items()),
        scenarios=tuple(Name(name, tomllib.loads(path.read_text())["title"]) for name, path in shipped().items()),
    )
