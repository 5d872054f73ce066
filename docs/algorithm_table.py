"""Writes the table of algorithms in docs/algorithms.md: what the verifier counted, beside the lower bounds."""

from pathlib import Path

from collectives import Algorithm, library, verify
from collectives.atomic import write_text
from collectives.cost import least_sent_share, least_steps

PAGE = Path(__file__).with_name("algorithms.md")
BEGIN, END = "<!-- table of algorithms: begin -->\n", "<!-- table of algorithms: end -->\n"
RANKS = (8, 12)


def table() -> str:
    """One row an algorithm, by collective."""
    head = [f"steps, p = {p}" for p in RANKS] + [f"sent, p = {p}" for p in RANKS]
    lines = ["| algorithm | channels | " + " | ".join(head) + " |", "| --- | ---: |" + " ---: |" * len(head)]
    rows = sorted(library().values(), key=lambda found: found.spec.name)
    return "\n".join([*lines, *(_row(found) for found in rows)]) + "\n"


def _row(found: Algorithm) -> str:
    reports = [verify(found, p) for p in RANKS]
    steps = [f"{report.steps} ({least_steps(report.world_size, report.ports)})" for report in reports]
    sent = [f"{r.sent_share:.3g} ({least_sent_share(found.spec.name, r.world_size):.3g})" for r in reports]
    channels = len(found.channels(0, RANKS[0]))
    return f"| `{found.full_name}` | {channels} | " + " | ".join([*steps, *sent]) + " |"


def updated(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
