"""Words on a command line about a machine: its name, and keys of a description."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from collectives.errors import InputError
from collectives.quoting import close_names
from scenarios import shipped
from simcomm.cluster.presets import machine_entries
from simcomm.nccl.descriptions import own_machines


def machine_line(name: str) -> dict[str, Any]:
    """Return the beginning of a line: a described machine, or one of the hardware catalogue. Raise InputError."""
    machines = own_machines()
    if name in machines:
        return {"machine": name}
    described = [machine for machine, line in machines.items() if line.get("preset") == name]
    if described:
        return {"machine": described[0]}
    if name in shipped():
        raise InputError(f"--system {name}: that is a scenario; give it before the options, without --system")
    close = close_names(name, [*machines, *machine_entries()])
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--system {name}: {meant}`ringlab hardware` lists the machines that there are")


def parse_keys(keys: Sequence[str]) -> Mapping[str, Any]:
    """Return ``key=value`` texts as a line's keys; a value that TOML does not know is a text."""
    found: dict[str, Any] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"--set {text}: give KEY=VALUE, for example nic=25")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()
    return found
