"""Writes the tables of docs/nccl.md: errors, choices that tables state, and the model's parameters."""

import json
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

from accuracy_table import CLASSES, RESULTS
from page_marks import write_between

from benchmarks.studies.nccl_unseen import describe
from collectives.output_files import write_text
from simcomm.accuracy.stated_choices import StatedChoice, describe_choices, find_stated_choices
from simcomm.nccl.descriptions import read_systems
from simcomm.nccl.measured.tables import read_tables
from simcomm.nccl.parameters import read_definitions

STRUCTURE = RESULTS.with_name("nccl_structure.json")
PAGE = Path(__file__).with_name("nccl.md")


def errors() -> str:
    """Return the errors as they were measured last."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [("each system left out (`python benchmarks/accuracy.py`), medians (means)", found["left_out"]),
            ("as shipped, fitted to all of them", found["shipped"])]  # fmt: skip
    lines = [f"| {found['date']} | {' | '.join(CLASSES.values())} |", "| --- | --- | --- | --- |"]
    for name, answer in rows:
        scores = [answer["classes"][one] for one in CLASSES]
        cells = [f"{100 * one['median']:.1f} ({100 * one['mean_capped']:.1f}) %" for one in scores]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    held = [f"{100 * found['left_out']['classes'][one]['coverage80']:.0f} %" for one in CLASSES]
    return "\n".join([*lines, f"| rows held by 80 % intervals, left out | {' | '.join(held)} |"]) + "\n"


def structure() -> str:
    """Return what systems of unknown authors leave as errors, with all of the model and without each ingredient."""
    found = json.loads(STRUCTURE.read_text(encoding="utf-8"))
    lines = [f"| {found['date']} | {' | '.join(CLASSES.values())} |", "| --- | --- | --- | --- |"]
    for row in found["rows"]:
        lines.append(f"| {row['title']} | {' | '.join(_draws(row['draws'], one) for one in CLASSES)} |")
    whole = found["rows"][0]["draws"]
    held = [", ".join(f"{100 * draw['classes'][one]['coverage80']:.0f}" for draw in whole) for one in CLASSES]
    lines.append(f"| rows held by 80 % intervals | {' | '.join(f'{cell} %' for cell in held)} |")
    aside = [found["put_aside"][one] for one in CLASSES]
    cells = [f"{100 * one['median']:.1f} ({100 * one['mean_capped']:.1f}) %" for one in aside]
    systems = ", ".join(str(one["systems"]) for one in aside)
    lines.append(f"| put aside ({systems} systems): `ringlab accuracy --put-aside` | {' | '.join(cells)} |")
    held = [f"{100 * one['coverage80']:.0f} %" for one in aside]
    return "\n".join([*lines, f"| rows held by 80 % intervals, of those | {' | '.join(held)} |"]) + "\n"


def _draws(draws: list[dict[str, Any]], size_class: str) -> str:
    scores = [draw["classes"][size_class] for draw in draws]
    medians, means = (", ".join(f"{100 * one[key]:.1f}" for one in scores) for key in ("median", "mean_capped"))
    return f"{medians} ({means}) %"


def choices() -> str:
    """Return what tables state of NCCL's choices, a line for each system, and what the model takes there."""
    systems = read_systems()
    found = find_stated_choices(systems, read_tables(systems))
    lines = [
        "| system | rows | stated | by whom | taken by the model | right |",
        "| --- | ---: | --- | --- | --- | ---: |",
    ]
    lines += [_choice_row(slug, list(rows)) for slug, rows in groupby(found, lambda one: one.slug)]
    said = " ".join(describe_choices(systems, read_tables(systems)))
    return "\n".join([*lines, "", fill(said, 120, break_long_words=False, break_on_hyphens=False)]) + "\n"


def _choice_row(slug: str, rows: list[StatedChoice]) -> str:
    stated, taken = (
        ", ".join(dict.fromkeys(" ".join(word for word in choice if word) for choice in choices))
        for choices in ((one.stated for one in rows), (one.taken for one in rows))
    )
    by_whom = "forced by the run" if rows[0].is_forced else "the source"
    cells = [f"`{slug}`", str(len(rows)), stated, by_whom, taken, str(sum(one.is_right for one in rows))]
    return f"| {' | '.join(cells)} |"


def parameters() -> str:
    """Return the parameters with their values, but for the factors of single clusters."""
    lines = ["| parameter | value | prior | what it is | prior from |", "| --- | ---: | ---: | --- | --- |"]
    for name, one in read_definitions().items():
        if not name.startswith("hosts."):
            unit = f" {one.unit}" if one.unit else ""
            lines.append(f"| `{name}` | {one.value:.3g}{unit} | {one.prior:.3g} | {one.meaning} | {one.source} |")
    return "\n".join(lines) + "\n"


def unseen() -> str:
    """Return the errors and intervals of systems of authors that no fit has seen."""
    return "".join(f"{line}\n" for line in describe())


TABLES = {"errors": errors, "structure": structure, "unseen": unseen, "choices": choices, "parameters": parameters}


def updated(page: str) -> str:
    """Return the page with its tables as they are now."""
    for name, table in TABLES.items():
        page = write_between(page, name, table())
    return page


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
