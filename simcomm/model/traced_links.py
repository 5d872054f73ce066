"""Describe the links in a trace: their bandwidth over time, and the bytes that they carried."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

from collectives.records.trace import LinkRate, TracedLink
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import Link
from simcomm.model.faults import NO_FAULTS, Faults


def trace_links(
    cluster: Cluster, transport: Transport, carried: Sequence[float], elapsed: float, faults: Faults = NO_FAULTS
) -> list[TracedLink]:
    """Return the links of a run that took ``elapsed`` seconds. ``carried`` lists the bytes per link, in graph order."""
    shares = _shares_over_time(faults, elapsed)
    links, cache = list[TracedLink](), dict[tuple[float, float], tuple[LinkRate, ...]]()
    for (a, b, data), nbytes in zip(cluster.graph.edges(data=True), carried, strict=True):
        alone, shared = data["bandwidth"], data.get("shared_bandwidth", data["bandwidth"])
        if (a, b) in shares:
            rates = _rates(alone, shared, transport.goodput, {0.0: 1.0} | shares[a, b])
        else:
            if (alone, shared) not in cache:
                cache[alone, shared] = _rates(alone, shared, transport.goodput, {0.0: 1.0})
            rates = cache[alone, shared]
        links.append(TracedLink(a, b, alone, data["latency"], float(nbytes), rates))
    return links


def _rates(alone: float, shared: float, goodput: float, by_time: dict[float, float]) -> tuple[LinkRate, ...]:
    return tuple(
        LinkRate(since, *(rate * goodput * share if share > 0 else 0.0 for rate in (alone, shared)))
        for since, share in by_time.items()
    )


def _shares_over_time(faults: Faults, elapsed: float) -> dict[Link, dict[float, float]]:
    shares: defaultdict[Link, dict[float, float]] = defaultdict(dict)
    for time, link, share in takewhile(lambda change: change.time <= elapsed, faults.changes()):
        shares[link][time] = share
    return shares
