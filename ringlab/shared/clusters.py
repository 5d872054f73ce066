"""Machines that options name or describe by keys, as ``--system`` and ``--set`` do."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from collectives.errors import InputError
from collectives.quoting import close_names
from collectives.units import TomlFloat
from scenarios import shipped
from simcomm.cluster.hardware import machine_entries
from simcomm.nccl.descriptions import check_own_line, own_machines


def machine_line(name: str) -> dict[str, Any]:
    """Return the beginning of a line: a described machine, or one of the hardware catalogue. Raise InputError."""
    machines = own_machines()
    if name in machines:
        return {"machine": name}
    described = [machine for machine, line in machines.items() if line.get("preset") == name]
    if described:
        return {"machine": described[0]}
    if name in shipped():
        raise InputError(f"--system {name} is a scenario; pass it as the first argument instead")
    close = close_names(name, [*machines, *machine_entries()])
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--system {name}: unknown machine; {meant}`ringlab list hardware` lists all machines")


def parse_keys(keys: Sequence[str]) -> Mapping[str, Any]:
    """Return ``key=value`` texts as a line's keys; a value that TOML does not know is a text."""
    found: dict[str, Any] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"--set {text}: expected KEY=VALUE, for example 'nic=25 Gbit/s'")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}", parse_float=TomlFloat)["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()
    check_own_line("--set", found)
    return found
