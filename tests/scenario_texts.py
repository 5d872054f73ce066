"""Parts of scenario files, and the check that an invalid one is rejected."""

from pathlib import Path

import pytest

from collectives import InputError
from scenarios import load

STAR = """
[cluster]
topology = "star"
hosts = 4
bandwidth = "10 Gbit/s"
latency = "5 us"
"""
LINKS = """
[cluster]
[[cluster.link]]
between = ["h0", "s0"]
bandwidth = "200 Mbit/s"
latency = "50 us"
[[cluster.link]]
between = ["s0", "h1"]
bandwidth = "1 Gbit/s"
latency = "0 us"
"""
HERE = '[cluster]\npreset = "this-machine"\n'
ASKS = """
[collective]
name = "all_reduce"
algorithms = ["naive", "ring"]
sizes = ["64 KiB", "1 MiB"]
"""
TRAINS = '[training]\ngradient_sync = ["ring"]\n'


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "asked.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def check_refused(folder: Path, text: str | bytes, message: str, *sets: str) -> None:
    """Assert that loading the scenario with overrides fails with one line that names the file and has the message."""
    with pytest.raises(InputError) as error:
        load(write(folder, text), list(sets))
    line = str(error.value)
    assert line.startswith(f"{folder / 'asked.toml'}{' with --set' if sets else ''}")
    assert message in line
    assert not [foreign for foreign in ("\n", "pydantic", "Input") if foreign in line]
