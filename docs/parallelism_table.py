"""Write the tables of docs/reports/strategies.md: torch's strategies on gloo ranks, and emulated hosts.

``benchmarks/strategies.py`` and ``make one-rank`` measure them.
"""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from page_writer import Parts, read_results

from collectives.units import count

Found = dict[str, Any]


def median_error() -> float:
    """Return the median error of the held-out strategies."""
    return median(abs(row["error"]) for row in read_results("strategies")["rows"] if row["is_aside"])


def strategies(results: Found) -> Iterator[str]:
    """Yield a table of torch's strategies on gloo ranks, predicted from the pieces of a step."""
    yield f"{where(results['environment'], results['others'])}."
    yield f"Times are medians of {count(results['rounds'], 'round')} of {results['steps']} steps."
    for is_aside, split in ((False, "development"), (True, "held-out")):
        rows = [row for row in results["rows"] if row["is_aside"] == is_aside]
        error = 100 * median(abs(row["error"]) for row in rows)
        inside = sum(row["inside"] >= 0.5 for row in rows)
        yield f"The median error of {len(rows)} {split} rows is {error:.0f} %, and {inside} are inside their interval."
    yield ""
    yield "| strategy | model | | predicted, ms | measured, ms | error, % |"
    yield "| --- | --- | --- | ---: | ---: | ---: |"
    for row in results["rows"]:
        times = f"{1e3 * row['predicted_s']:.0f} | {1e3 * row['measured_s']:.0f} | {100 * row['error']:+.0f}"
        model, aside = row["model"].partition(",heads")[0], "held out" if row["is_aside"] else ""
        yield f"| {row['strategy']} | {model} | {aside} | {times} |"


def hosts(results: Found) -> Iterator[str]:
    """Yield a table of trainings on emulated hosts, predicted from one rank."""
    others = max((load["others"] for load in results["loads"].values()), default=None)
    yield f"{where(results['environment'], others)}."
    yield ""
    yield "| gradient sync | hosts | predicted, s | measured, s | error, % |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in results["rows"]:
        sync, _, phase = row["what"].rpartition(": ")
        if phase == "step":
            times = f"{row['predicted_s']:.3f} | {row['measured_s']:.3f} | {100 * row['error']:+.1f}"
            yield f"| {sync} | {row['world_size']} | {times} |"


def where(environment: Found, others: float | None) -> str:
    """Return the machine of a measurement."""
    busy = "" if others is None else f", {others:.0%} of them busy with other processes"
    return (
        f"{environment['date']}: {environment['cpu']}, {environment['cores']} cores{busy}, torch {environment['torch']}"
    )


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


PARTS: Parts = {
    "docs/reports/strategies.md": {
        "strategies": lambda: _lines(strategies(read_results("strategies"))),
        "hosts": lambda: _lines(hosts(read_results("one_rank"))),
    }
}
