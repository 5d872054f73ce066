"""Write the tables of NCCL's model: errors, ablations, noise, stated choices and parameters."""

from itertools import groupby
from textwrap import fill
from typing import Any

from accuracy_table import CLASSES
from page_writer import Parts, read_results, table

from benchmarks.accuracy.nccl import StatedChoice, describe_choices, find_stated_choices
from benchmarks.accuracy.tables import read_tables
from benchmarks.studies.nccl_noise import describe as describe_noise
from benchmarks.studies.nccl_noise import find_pairs, judge
from benchmarks.studies.nccl_unseen import describe
from simcomm.nccl.descriptions import read_systems
from simcomm.nccl.parameters import read_definitions


def errors() -> str:
    """Return the last measured errors."""
    results = read_results("nccl_errors")
    answers = {
        "each system left out (`python benchmarks/nccl_errors.py`), medians (means)": results["left_out"],
        "as shipped, fitted to all of them": results["shipped"],
    }
    rows = [[name, *map(_cell, answer["classes"].values())] for name, answer in answers.items()]
    return _table(results, [*rows, ["rows inside 80 % intervals, left out", *_held(results["left_out"]["classes"])]])


def _table(results: dict[str, Any], rows: list[list[str]]) -> str:
    return table(" | ".join([results["date"], *CLASSES.values()]), rows)


def _cell(score: dict[str, Any]) -> str:
    return f"{100 * score['median']:.1f} ({100 * score['mean_capped']:.1f}) %"


def _held(classes: dict[str, Any]) -> list[str]:
    return [f"{100 * classes[size_class]['coverage80']:.0f} %" for size_class in CLASSES]


def structure() -> str:
    """Return the errors with authors left out, for the whole model and for the model without each term."""
    results = read_results("nccl_structure")
    rows = [[row["title"], *(_draws(row["draws"], size_class) for size_class in CLASSES)] for row in results["rows"]]
    full_draws, aside = results["rows"][0]["draws"], results["put_aside"]
    coverages = [
        ", ".join(f"{100 * draw['classes'][size_class]['coverage80']:.0f}" for draw in full_draws)
        for size_class in CLASSES
    ]
    systems = ", ".join(str(aside[size_class]["systems"]) for size_class in CLASSES)
    rows += [
        ["rows inside 80 % intervals", *(f"{cell} %" for cell in coverages)],
        [
            f"held out ({systems} systems): `python -m benchmarks.accuracy --held-out`",
            *(_cell(aside[size_class]) for size_class in CLASSES),
        ],
        ["rows inside 80 % intervals, held out", *_held(aside)],
    ]
    return _table(results, rows)


def _draws(draws: list[dict[str, Any]], size_class: str) -> str:
    scores = [draw["classes"][size_class] for draw in draws]
    medians, means = (", ".join(f"{100 * score[key]:.1f}" for score in scores) for key in ("median", "mean_capped"))
    return f"{medians} ({means}) %"


def choices() -> str:
    """Return the choices of NCCL that tables state, and the model's choices."""
    systems = read_systems()
    stated = find_stated_choices(systems, read_tables(systems))
    made = table(
        "system | rows: | stated choice | stated by | choice of the model | right:",
        [_choice_row(slug, list(rows)) for slug, rows in groupby(stated, lambda choice: choice.slug)],
    )
    description = " ".join(describe_choices(systems, read_tables(systems)))
    return f"{made}\n{fill(description, 120, break_long_words=False, break_on_hyphens=False)}\n"


def _choice_row(slug: str, rows: list[StatedChoice]) -> list[str]:
    stated, taken = (
        ", ".join(dict.fromkeys(" ".join(word for word in choice if word) for choice in choices))
        for choices in ((choice.stated for choice in rows), (choice.taken for choice in rows))
    )
    by_whom = "the run, forced" if rows[0].is_forced else "the source"
    return [f"`{slug}`", str(len(rows)), stated, by_whom, taken, str(sum(choice.is_right for choice in rows))]


def parameters() -> str:
    """Return all parameters except the factors of single clusters."""
    rows = [
        [
            f"`{name}`",
            f"{definition.value:.3g} {definition.unit}".strip(),
            f"{definition.prior:.3g}",
            definition.meaning,
            definition.source,
        ]
        for name, definition in read_definitions().items()
        if not name.startswith("hosts.")
    ]
    return table("parameter | value: | prior: | meaning | source of the prior", rows)


def unseen() -> str:
    """Return the errors and intervals for authors left out of the fit."""
    return "".join(f"{line}\n" for line in describe())


def noise() -> str:
    """Return the differences between tables of one machine."""
    pairs = find_pairs(read_systems(), judge())
    factors: dict[tuple[str, str], dict[str, float]] = {}
    for pair in pairs:
        factors.setdefault((pair.one, pair.other), {})[pair.size_class] = pair.factor
    rows = [
        [
            f"`{slug}`, `{other}`",
            *(f"{100 * (factors_of_pair[size] - 1):.0f} %" if size in factors_of_pair else "" for size in CLASSES),
        ]
        for (slug, other), factors_of_pair in factors.items()
    ]
    made = table(" | ".join(["tables of one machine", *(f"{name}:" for name in CLASSES.values())]), rows)
    return f"{made}\n{fill(describe_noise(pairs), 120)}\n"


PARTS: Parts = {
    "docs/reports/nccl.md": {
        "errors": errors, "structure": structure, "unseen": unseen, "noise": noise, "choices": choices,
    },
    "docs/reference/nccl.md": {"parameters": parameters},
}  # fmt: skip
