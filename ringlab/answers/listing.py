"""What there is to name: algorithms, presets and scenarios."""

import tomllib

from collectives.catalogue import library
from scenarios import shipped
from simcomm.cluster.presets import machine_entries

PRESETS = {"this-machine": "processes of this machine, joined by its memory; needs a calibration to predict"}


def listing() -> dict[str, list[dict[str, str]]]:
    """Names by kind, each with a line about it: an algorithm's docstring, a scenario's title."""
    return {
        "algorithms": [
            _entry(name, (found.function.__doc__ or "").partition("\n")[0]) for name, found in library().items()
        ],
        "presets": [_entry(name, about) for name, about in (PRESETS | _machines()).items()],
        "scenarios": [_entry(name, tomllib.loads(path.read_text())["title"]) for name, path in shipped().items()],
    }


def _machines() -> dict[str, str]:
    return {name: entry["title"] for name, entry in machine_entries().items()}


def _entry(name: str, about: str) -> dict[str, str]:
    return {"name": name, "about": about}
