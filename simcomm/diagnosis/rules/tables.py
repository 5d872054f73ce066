"""What measured tables show by themselves: the host or pair that is off, rates that collapse, a test that is none."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase, series_of
from simcomm.diagnosis.evidence.facts import StartedTest, TestTable

OFF = 0.75  # of the usual rate: below it a host or pair is off
COLLAPSE = 0.55  # of the best rate of a smaller size
LARGE = 2**20  # bytes, from which on a rate should not fall


def find_slow_host(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the host that is in most slow tables and in no fast one; else the pairs of hosts."""
    tables = [one for one in case.facts.of(TestTable) if len(one.hosts) >= 2 and series_of(one)]
    for collective, ranks in sorted({(series_of(one)[0].collective, one.run.ranks) for one in tables}):
        alike = [one for one in tables if one.run.ranks == ranks and series_of(one)[0].collective == collective]
        size = max(set.intersection(*(set(series_of(one)[0].nbytes.tolist()) for one in alike)), default=0.0)
        if len(alike) < 2 or not size:
            continue
        rated = sorted(((size / _seconds(one, size), one) for one in alike), key=lambda pair: pair[0])
        slow = [one for rate, one in rated if rate < OFF * rated[-1][0]]
        if slow:
            yield _slow_host_or_pairs(slow, [one for _, one in rated if one not in slow], rated[-1][0] / rated[0][0])


def _slow_host_or_pairs(slow: list[TestTable], fast: list[TestTable], factor: float) -> Cause:
    """Return the host that most slow runs have and no fast one, else that the pairs of the slow runs are slow."""
    well = {host for one in fast for host in one.hosts}
    runs = Counter(host for one in slow for host in one.hosts if host not in well)
    name, count = runs.most_common(1)[0] if runs else ("", 0)
    if [*runs.values()].count(count) == 1:
        place = next(one.place for one in slow if name in one.hosts)
        text = f"{name} is in {count} of {len(slow)} slow runs and in no fast one: they are {factor:.2g} times slower"
        remedy = f"look at {name}'s NICs, cables, PCIe slots and GPUDirect; run it with a third host"
        return Cause("slow-host", text, place, remedy, 0.95, factor)
    pairs = " and ".join(", ".join(one.hosts) for one in slow[:3])
    text = f"between {pairs} it is {factor:.2g} times slower than between the others"
    remedy = (
        "each host with a third one tells whether it is a host or the way between them: a cable, or flows that "
        "collide on "
        "a switch (adaptive routing)"
    )
    return Cause("slow-pair", text, slow[0].place, remedy, 0.85, factor)


def _seconds(table: TestTable, size: float) -> float:
    series = series_of(table)[0]
    return float(series.seconds[series.nbytes == size][0])


def find_collapse(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that the rate of large sizes falls far below that of smaller ones, as where a network loses packets."""
    for table in case.facts.of(TestTable):
        for series in series_of(table):
            rates = series.nbytes / series.seconds
            best = np.maximum.accumulate(rates)
            fallen = np.flatnonzero((series.nbytes >= LARGE) & (rates < COLLAPSE * best))
            if not len(fallen) or rates[fallen[0]] * 1e-9 < 0.01:
                continue
            at = int(fallen[np.argmin(rates[fallen] / best[fallen])])
            text = (
                f"{series.collective} falls to {rates[at] / 1e9:.3g} GB/s at {series.nbytes[at] / 2**20:.4g} MiB, from "
                f"{best[at] / 1e9:.3g} at smaller sizes"
            )
            several = table.run.hosts > 1
            yield Cause(
                "rate-collapses",
                text,
                table.place,
                "look at counters of lost packets and pauses on NICs and switches: RoCE without flow control does so "
                "(PFC and ECN on all of them)"
                if several
                else "measure again while nothing else runs",
                0.7 if several else 0.4,
                float(best[at] / rates[at]),
            )


def find_no_mpi(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that processes measured each for itself: the test knows nothing of the others."""
    started = case.facts.of(StartedTest)
    tables = case.facts.of(TestTable)
    lists = [(one.place, one.devices) for one in started] + [(one.place, one.devices) for one in tables]
    for (_, one), (place, other) in combinations(lists, 2):
        apart = {device.host for device in one}.isdisjoint({device.host for device in other})
        if apart and {device.rank for device in one} == {device.rank for device in other} and len(tables) < len(lists):
            yield Cause(
                "no-mpi",
                "each process lists its own rank 0: the tests were built without MPI and ran apart",
                place,
                "build nccl-tests with make MPI=1 MPI_HOME=...",
                0.95,
            )
            return
    alone = [one for one in tables if one.run.ranks == 1]
    if alone:
        yield Cause(
            "no-mpi",
            "the run has one rank, so nothing is sent and busbw is 0",
            alone[0].place,
            "give -g with the number of GPUs, or build with MPI=1 and start several processes",
            0.9,
        )


def find_small_sizes(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that only sizes were measured at which latency decides."""
    tables = [one for one in case.facts.of(TestTable) if series_of(one)]
    largest = max((series.nbytes[-1] for one in tables for series in series_of(one)), default=0.0)
    if 0 < largest < LARGE:
        place = tables[0].place
        yield Cause(
            "sizes-too-small",
            f"the largest size is {largest / 1024:.4g} KiB: its time is latency, and says nothing of bandwidth",
            place,
            "measure up to 1 GiB: -b 8 -e 1G -f 2",
            0.3,
        )


RULES = (find_slow_host, find_collapse, find_no_mpi, find_small_sizes)
