"""NCCL flight recorder dumps as JSON: the last collectives of a rank, with their state."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.quoting import make_printable, quote
from simcomm.diagnosis.evidence.facts import Fact, FilePlace, FlightCall, FlightGroup, name_ranks

MOST_ENTRIES = 200_000
MOST_LISTED = 10_000_000  # letters of a list of ranks
STATES = ("scheduled", "started", "completed")
KEYS = ("collective_seq_id", "p2p_seq_id", "seq_id")


def recognises(content: dict[str, Any]) -> bool:
    """Return whether it is a dump: it has entries, and the version or configuration of process groups."""
    return "entries" in content and ("pg_config" in content or "version" in content)


def read(path: Path, content: dict[str, Any]) -> Iterator[Fact]:
    """Yield each call. Raise InputError that names the entry and key."""
    entries = content["entries"]
    if not isinstance(entries, list) or len(entries) > MOST_ENTRIES:
        raise InputError(f"{path}: entries should be a list of at most {MOST_ENTRIES:,}")
    rank = _rank(path, content)
    groups = {one.group.partition(" ")[0]: one for one in _groups(path, rank, content)}
    yield from groups.values()
    for number, entry in enumerate(entries):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{where} is {quote(entry)}; a flight recorder has objects there")
        sequence = next((entry[key] for key in KEYS[:1] + KEYS[2:] if type(entry.get(key)) is int), None)
        name, state = entry.get("profiling_name", ""), entry.get("state", "")
        if sequence is None or not isinstance(name, str) or state not in STATES:
            raise InputError(f"{where}: collective_seq_id, profiling_name or state ({', '.join(STATES)}) is missing")
        said = entry.get("process_group", ["0"])
        named = str(said[0] if isinstance(said, list) and said else said)[:80]
        yield FlightCall(
            FilePlace.of(str(path), 0, f"entry {number}: {name} {sequence} {state}"),
            rank,
            groups[named].group if named in groups else named,
            sequence,
            name.rpartition(":")[2],
            state,
            sizes=f"{entry.get('input_sizes', '')}"[:80],
            frame=_frame(entry),
            is_p2p=bool(entry.get("is_p2p")),
        )


def _groups(path: Path, rank: int, content: dict[str, Any]) -> Iterator[FlightGroup]:
    """Yield the groups of a rank by name and members: groups that are split off at once share one name."""
    found = content.get("pg_config")
    for name, one in found.items() if isinstance(found, dict) else ():
        listed = one.get("ranks") if isinstance(one, dict) else None
        text = listed if isinstance(listed, str) else str(listed if isinstance(listed, list) else "")
        if len(text) <= MOST_LISTED and re.fullmatch(r"\[\d{1,7}(?:, ?\d{1,7})*\]", text):
            members = tuple(map(int, text.strip("[]").split(",")))
            said = f"{one.get('desc', '')}"[:80]
            label = make_printable(f"{name} ({said + ' ' * bool(said)}of {name_ranks(members)})", most=200)
            yield FlightGroup(FilePlace(str(path), 0, ""), rank, label, members)


def _rank(path: Path, content: dict[str, Any]) -> int:
    """Return the rank that the dump says, or that its name ends with."""
    said = content.get("rank")
    if type(said) is int and 0 <= said < 1_000_000:
        return said
    found = re.search(r"(\d{1,6})(?:\.json)?$", path.name)
    if found is None:
        raise InputError(f"{path}: which rank's? end the file's name with it, as trace_rank_3.json, or give a key rank")
    return int(found[1])


def _frame(entry: dict[str, Any]) -> str:
    """Return the innermost frame outside torch."""
    frames = entry.get("frames")
    for one in frames if isinstance(frames, list) else []:
        if isinstance(one, dict) and "torch/" not in str(one.get("filename", "")):
            return f"{one.get('name', '')} ({one.get('filename', '')}:{one.get('line', '')})"[:160]
    return ""
