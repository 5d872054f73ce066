"""Write the errors of the TCP model on emulated clusters, with all terms and without each.

``make reality`` measures the rows. The model was built on the scenarios of ``CHOSEN_ON``; the others are held out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from page_writer import Parts, dated, read_results

import simcomm
from benchmarks.accuracy.emulated_rows import WITHIN
from benchmarks.accuracy.here import pair_before
from collectives import Transport
from collectives.units import format_size
from ringlab.emulated import hosts_bandwidth, without_latencies
from scenarios import load
from simcomm.cluster.pair_fit import TCP_GOODPUT, fit_pair

CHOSEN_ON = ("star4", "bad-order", "three-racks")
OFF: dict[str, dict[str, Any]] = {
    "the executor's pipeline": {"pipeline": False},
    "receive-ready": {"receive_ready": False},
    "send buffer": {"send_buffer": 0.0},
    "window": {"window": inf},
    "piece": {"piece": inf},
    "headers": {"header": 0.0},
    "burst": {"burst": 0.0},
    "acknowledgements": {"acknowledgement": 0.0},
    "shared cores": {"cores": inf},
    "waking up a waiting rank": {"wake_cpu": 0.0},
    "gloo's own posts": {"own_share": 1.0, "own_start": 0.0},
    "shared cores and CPU time": {"cores": inf, "post_cpu": 0.0, "arrival_cpu": 0.0, "wake_cpu": 0.0},
}
Row = dict[str, Any]


class Rows:
    """The measured collectives of a file, and what is predicted of them."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.rows: list[Row] = [row for row in results["rows"] if row["bytes"] is not None]
        self.trained: list[Row] = [row for row in results["rows"] if row["bytes"] is None]
        self._clusters = {name: without_latencies(load(f"emulated/{name}").cluster) for name in self.scenarios}
        self._pairs = {
            name: pair_before(results, name, hosts_bandwidth(cluster)) for name, cluster in self._clusters.items()
        }

    @property
    def scenarios(self) -> list[str]:
        """The names of the scenarios that were emulated."""
        return list(dict.fromkeys(row["scenario"] for row in self.rows))

    def errors(self, off: dict[str, Any] | None, scenario: str | None = None) -> list[float]:
        """Return the relative errors of all rows or of one scenario; without any terms if ``off`` is None."""
        rows = [row for row in self.rows if scenario in (None, row["scenario"])]
        return [self.predict(row, off) / row["measured_s"] - 1 for row in rows]

    def transport(self, row: Row) -> Transport:
        """Return the transport by which a row is predicted."""
        return fit_pair(self._pairs[row["scenario"]], self._clusters[row["scenario"]].world_size)

    def predict(self, row: Row, off: dict[str, Any] | None) -> float:
        """Return the seconds of a row with some fields of the terms changed."""
        cluster, transport = self._clusters[row["scenario"]], self.transport(row)
        terms = transport.tcp
        assert terms is not None
        if off is None:
            transport = replace(transport, tcp=None, goodput=TCP_GOODPUT)
        else:
            transport = replace(transport, tcp=replace(terms, **off))
        call = row["what"] if row["what"] != "all_to_all" else "all_to_all/direct"
        name = call if "/" in call else f"all_reduce/{call}"
        cluster = replace(cluster, transport=transport)
        return simcomm.run(name, cluster, row["bytes"], engine="compiled", record=False).elapsed


def summary(errors: Sequence[float]) -> str:
    """Return the median and the 90th percentile of absolute errors, and the share of small ones, as cells.

    >>> summary([0.01, -0.02, 0.2])
    '2.0 | 20.0 | 67'
    """
    size = sorted(abs(each) for each in errors)
    within = sum(each <= WITHIN for each in size) / len(size)
    return f"{100 * median(size):.1f} | {100 * size[int(0.9 * len(size))]:.1f} | {100 * within:.0f}"


def table(rows: Rows) -> Iterator[str]:
    """Yield the lines of two tables: errors by scenario and, over all rows, without each term."""
    head = f"median, % | p90, % | within {WITHIN:.0%}, %"
    yield f"| scenario | | rows | {head} | without any term: {head} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in rows.scenarios:
        kind, errors = "development" if name in CHOSEN_ON else "held out", rows.errors({}, name)
        yield f"| {name} | {kind} | {len(errors)} | {summary(errors)} | {summary(rows.errors(None, name))} |"
    yield ""
    yield f"| term left out, all scenarios | {head} |"
    yield "| --- | ---: | ---: | ---: |"
    yield f"| none | {summary(rows.errors({}))} |"
    for term, off in OFF.items():
        yield f"| {term} | {summary(rows.errors(off))} |"
    if rows.trained:
        yield ""
        yield "| training | ranks | predicted, s | measured, s | error, % |"
        yield "| --- | ---: | ---: | ---: | ---: |"
    for row in rows.trained:
        if row["error"] is None:
            continue  # a sync that the prediction hides in backward
        seconds = f"{row['predicted_s']:.4g} | {row['measured_s']:.4g}"
        yield f"| {row['what']} | {row['world_size']} | {seconds} | {100 * row['error']:+.1f} |"


def misses(rows: Rows) -> Iterator[str]:
    """Yield a table of the collectives with errors above ``WITHIN``, with the message that differs most."""
    yield "| scenario | algorithm | size | measured, ms | error, % | main cause | largest difference |"
    yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
    for row in rows.rows:
        if abs(row["error"]) > WITHIN:
            row_name = f"{row['scenario']} | {row['what']} | {format_size(row['bytes'])}"
            late = row["lateness"] or {"cause": "not known", "where": "its messages are not in the trace"}
            where = f"{late['cause']} | {late['where']}"
            yield f"| {row_name} | {1e3 * row['measured_s']:.3g} | {100 * row['error']:+.0f} | {where} |"


def _lines(make: Callable[[Rows], Iterator[str]]) -> str:
    results = read_results("accuracy_here")
    return dated(results, "\n".join(make(Rows(results))) + "\n")


PARTS: Parts = {
    "docs/reports/tcp.md": {"terms": lambda: _lines(table), "misses": lambda: _lines(misses)},
}
