"""Write the table of algorithms: steps and bytes, next to the lower bounds."""

from page_writer import Parts, table

from collectives import Algorithm, library, verify
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.verdict import differs_from

RANKS = (8, 12)


def algorithms() -> str:
    """Return the table of algorithms: a row per algorithm, by collective."""
    heads = [f"{quantity}, p = {p}:" for quantity in ("steps", "sent") for p in RANKS]
    rows = sorted(library().values(), key=lambda algorithm: algorithm.spec.name)
    return table(" | ".join(["algorithm", "channels:", *heads, "same bits"]), map(_row, rows))


def _row(algorithm: Algorithm) -> list[str]:
    reports = [verify(algorithm, p) for p in RANKS]
    steps = [f"{report.steps} ({least_steps(report.world_size, report.ports)})" for report in reports]
    sent = [f"{r.sent_share:.3g} ({least_sent_share(algorithm.spec.name, r.world_size):.3g})" for r in reports]
    fewest = differs_from(algorithm)
    bits = "-" if not algorithm.spec.is_shared else "yes" if fewest is None else f"up to {fewest - 1} ranks"
    return [f"`{algorithm.full_name}`", str(len(algorithm.channels(0, RANKS[0]))), *steps, *sent, bits]


PARTS: Parts = {"docs/reference/algorithms.md": {"table of algorithms": algorithms}}
