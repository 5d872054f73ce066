"""``Names``: the algorithms, presets, models and scenarios that there are."""

import tomllib
from dataclasses import dataclass, fields

from collectives.catalogue import library
from collectives.records.model_profile import find_model_profile, shipped_model_profiles
from ringlab.shared.answer import Record
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
    models: tuple[Name, ...]
    scenarios: tuple[Name, ...]

    def __repr__(self) -> str:
        return f"<Names: {', '.join(f'{len(getattr(self, part.name))} {part.name}' for part in fields(self))}>"


def list_names() -> Names:
    """Return names by kind, each with a line about it: an algorithm's docstring, a model's size, a scenario's title.

    >>> [one.name for one in list_names().scenarios][:3]
    ['dgx-h100', 'quickstart', 'rtx4090-4x']
    """
    machine_titles = {name: entry["title"] for name, entry in machine_entries().items()}
    return Names(
        algorithms=tuple(
            Name(name, (found.function.__doc__ or "").partition("\n")[0]) for name, found in library().items()
        ),
        presets=tuple(Name(name, about) for name, about in (PRESETS | machine_titles).items()),
        models=tuple(Name(name, _about_model(name)) for name in shipped_model_profiles()),
        scenarios=tuple(Name(name, tomllib.loads(path.read_text())["title"]) for name, path in shipped().items()),
    )


def _about_model(name: str) -> str:
    return f"{find_model_profile(name).parameters / 1e6:,.4g} million parameters"
