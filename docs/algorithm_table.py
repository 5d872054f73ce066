"""Writes the tables in docs/algorithms.md: what the verifier counted beside the lower bounds, and who is fastest."""

from pathlib import Path

from page_marks import write_between

from collectives import Algorithm, library, verify
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.output_files import write_text
from collectives.units import format_size
from ringlab.commands.winners import winners
from simcomm import star

PAGE = Path(__file__).with_name("algorithms.md")
LINK = ("100 Gbit/s", "2 us")
RANKS = (8, 12)
HOSTS, SMALLEST, LARGEST, FACTOR = 256, "1K", "64M", 16  # of the table of winners


def table() -> str:
    """Return the table of algorithms: a row per algorithm, by collective."""
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


def winners_table() -> str:
    """Return the table of winners: for each number of ranks and size the fastest all_reduce on a star, and its gain."""
    found = winners("all_reduce", star(HOSTS, *LINK), None, (SMALLEST, LARGEST, FACTOR)).map
    sizes = " | ".join(format_size(nbytes) for nbytes in found.sizes)
    lines = [f"| ranks | {sizes} |", "| ---: |" + " --- |" * len(found.sizes)]
    for world_size, row in zip(found.world_sizes, found.choices, strict=True):
        lines.append(f"| {world_size} | " + " | ".join(f"{c.algorithm.name} {c.gain:.2f}" for c in row) + " |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """Return the page with the tables as they are now."""
    for name, made in (("algorithms", table()), ("winners", winners_table())):
        page = write_between(page, f"table of {name}", made)
    return page


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
