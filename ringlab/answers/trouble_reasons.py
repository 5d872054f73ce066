"""Why a prediction under trouble is what it is, in sentences: who waited for whom, and what everyone waited for."""

from typing import Any

from collectives.units import format_size, format_time
from ringlab.answers.answer import Answer

UNTOLD = "with this many messages nobody kept track of who waited for whom."
FREE = "Reducing takes no time on this transport, so ranks that are slow at it change nothing."
FEW = 3  # ranks or legs named in a sentence


def reasons(part: Answer) -> list[str]:
    """Two sentences for the largest size of each algorithm that was predicted under trouble, and for each training."""
    largest = max((entry["bytes"] for entry in part["collectives"]), default=0)
    entries = [entry for entry in part["collectives"] if entry["bytes"] == largest] + part["training"]
    where = f"{part['title']}, " if "title" in part else ""
    return [f"{where}{_name(entry)}: {_said(entry['trouble'])}" for entry in entries if "trouble" in entry]


def _name(entry: dict[str, Any]) -> str:
    if "algorithm" in entry:
        return f"{entry['algorithm']}, {format_size(entry['bytes'])}"
    return f"training with {entry['gradient_sync']}"


def _said(trouble: dict[str, Any]) -> str:
    said = [_never(trouble)] if trouble["never_ended"] else []
    if "median_s" in trouble:
        said += [_waited(trouble), _path(trouble)] if "waited_for" in trouble else [UNTOLD]
    said += [FREE] if trouble.get("computing") == "free" else []
    return " ".join(said)


def _never(trouble: dict[str, Any]) -> str:
    runs, stuck = trouble["repetitions"], trouble["never_ended"]
    how_often = "it never ends" if runs == 1 else f"{stuck} of {runs} runs never end"
    failed = [f"rank {one['rank']} failed at {format_time(one['at_s'])}" for one in trouble["failed"]]
    failed += [f"{' - '.join(one['between'])} is down since {format_time(one['at_s'])}" for one in trouble["down"]]
    waiting = [_waits(one) for one in trouble["unfinished"][:FEW]]
    more = len(trouble["unfinished"]) - FEW
    waiting += [f"{more} more wait for these"] if more > 0 else []
    return f"{how_often}: {'; '.join(failed + waiting)}."


def _waits(one: dict[str, Any]) -> str:
    way = f"to rank {one['peer']}" if one["sends"] else f"from rank {one['peer']}"
    since = f"since {format_time(one['since'])}"
    if one["is_under_way"]:
        return f"rank {one['rank']} waits in step {one['step']} {since} for a message {way} that is stuck on its way"
    half = "receive" if one["sends"] else "send"
    return f"rank {one['rank']} waits in step {one['step']} {since} for rank {one['peer']} to {half}"


def _waited(trouble: dict[str, Any]) -> str:
    if not trouble["waited_for"]:
        return "no rank waited for another to be ready."
    each = [
        f"rank {one['rank']} {format_time(one['s'])}"
        + (f" (rank {one['by'][0]['rank']} {format_time(one['by'][0]['s'])} of it)" if one["by"] else "")
        for one in trouble["waited_for"][:FEW]
    ]
    return f"waited for, by all other ranks together: {', '.join(each)}."


def _path(trouble: dict[str, Any]) -> str:
    whole = trouble["critical_path_s"]
    if whole <= 0:
        return ""
    legs = [f"{leg['what']} {leg['s'] / whole:.0%}" for leg in trouble["critical_path"][:FEW]]
    return f"Its end waited for: {', '.join(legs)}."
