"""Writes the tables in docs/algorithms.md: what the verifier counted beside the lower bounds, and who is fastest."""

from page_writer import Parts, table

from collectives import Algorithm, library, verify
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.units import format_size
from collectives.verdict import differs_from
from ringlab.commands.predicting.winners import winners
from simcomm import star

LINK = ("100 Gbit/s", "2 us")
RANKS = (8, 12)
HOSTS, SMALLEST, LARGEST, FACTOR = 256, "1K", "64M", 16  # of the table of winners


def algorithms() -> str:
    """Return the table of algorithms: a row per algorithm, by collective."""
    heads = [f"{what}, p = {p}:" for what in ("steps", "sent") for p in RANKS]
    rows = sorted(library().values(), key=lambda found: found.spec.name)
    return table(" | ".join(["algorithm", "channels:", *heads, "same bits"]), map(_row, rows))


def _row(found: Algorithm) -> list[str]:
    reports = [verify(found, p) for p in RANKS]
    steps = [f"{report.steps} ({least_steps(report.world_size, report.ports)})" for report in reports]
    sent = [f"{r.sent_share:.3g} ({least_sent_share(found.spec.name, r.world_size):.3g})" for r in reports]
    fewest = differs_from(found)
    bits = "-" if not found.spec.is_shared else "yes" if fewest is None else f"up to {fewest - 1} ranks"
    return [f"`{found.full_name}`", str(len(found.channels(0, RANKS[0]))), *steps, *sent, bits]


def winners_table() -> str:
    """Return the table of winners: for each number of ranks and size the fastest all_reduce on a star, and its gain."""
    found = winners("all_reduce", star(HOSTS, *LINK), None, (SMALLEST, LARGEST, FACTOR)).map
    rows = [
        [str(world_size), *(f"{one.algorithm.name} {one.gain:.2f}" for one in row)]
        for world_size, row in zip(found.world_sizes, found.choices, strict=True)
    ]
    return table(" | ".join(["ranks:", *map(format_size, found.sizes)]), rows)


PARTS: Parts = {"docs/algorithms.md": {"table of algorithms": algorithms, "table of winners": winners_table}}
