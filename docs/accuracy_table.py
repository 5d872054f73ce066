"""Write the error tables of NCCL predictions, and the reasons of errors above 50 %."""

import tomllib
from pathlib import Path
from textwrap import fill
from typing import Any

from page_writer import Parts, read_results, table

from benchmarks.studies.nccl_unseen import scores as score_unseen
from collectives.units import format_size

EXPLAINED = Path(__file__).with_name("accuracy_explained.toml")
CLASSES = {"small": "up to 64 KiB", "mid": "up to 16 MiB", "large": "above"}
BASELINES = {"torch": "torch's estimator", "tuner": "NCCL's tuner formula", "alpha-beta": "alpha-beta model"}
HIGH = 0.5


def measured(results: dict[str, Any]) -> str:
    """Return the tables of errors: all systems, families, collectives, rows to measure, and each system."""
    where = results["environment"]
    parts = [
        f"{results['date']}, torch {where['torch']}. `python -m benchmarks.accuracy` takes "
        f"{results['cpu_seconds']:.1f} s of CPU.\n",
        _table("", _overview(results)),
        *(_table(f"{key}, as shipped", _groups(results, key)) for key in ("family", "collective")),
        "If three rows of a table are known, its other rows have this median error (in brackets: with the shipped "
        "parameters):\n",
        _table("rows known", _gains(results["left_out"]["gains"], results["gains"])),
        "Error of each system if it is left out of the fit (in brackets: with the shipped parameters):\n",
        _table("system", _systems(results)),
    ]
    return "\n".join(parts)


def _table(title: str, rows: list[list[str]]) -> str:
    return table(" | ".join([title, *(f"{name}:" for name in CLASSES.values())]), rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _overview(results: dict[str, Any]) -> list[list[str]]:
    shipped, left_out = results["shipped"], results["left_out"]
    rows = [
        ["**each system left out**, median", *(f"**{_percent(left_out['classes'][c]['median'])}**" for c in CLASSES)],
        [
            "mean; errors above 100 % count as 100 %",
            *(_percent(left_out["classes"][c]["mean_capped"]) for c in CLASSES),
        ],
        ["rows within their 80 % interval", *(_percent(left_out["classes"][c]["coverage80"]) for c in CLASSES)],
        ["as shipped (fitted to all of them), median", *(_percent(shipped["classes"][c]["median"]) for c in CLASSES)],
    ]
    rows += [
        [BASELINES[name], *(_percent(scores[c]) for c in CLASSES)] for name, scores in shipped["baselines"].items()
    ]
    return [*rows, ["systems", *(str(left_out["classes"][c]["systems"]) for c in CLASSES)]]


def _groups(results: dict[str, Any], key: str) -> list[list[str]]:
    return [[name, *_medians(scores)] for name, scores in results["shipped"]["groups"][key].items()]


def _medians(scores: dict[str, Any]) -> list[str]:
    return [
        "" if scores[c]["median"] is None else f"{_percent(scores[c]['median'])} ({scores[c]['systems']})"
        for c in CLASSES
    ]


def _gains(left_out: list[dict[str, Any]], shipped: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each choice of sizes, the best first, and the error of the first choice without known rows."""
    of_shipped = {tuple(gain["sizes"]): gain for gain in shipped}
    rows, none = [], ("none, evaluated on the same rows as ", left_out[0], "before")
    for title, gain, key in [*(("", gain, "after") for gain in left_out), none]:
        sizes = ", ".join("the largest" if size is None else format_size(size) for size in gain["sizes"])
        inside = of_shipped.get(tuple(gain["sizes"]), {}).get(key, {})
        rows.append([title + sizes, *(_beside(gain[key][c], inside.get(c)) for c in CLASSES)])
    return [*rows, ["systems, first row", *(str(left_out[0]["after"][c]["systems"]) for c in CLASSES)]]


def _beside(left_out: dict[str, Any], shipped: dict[str, Any] | None) -> str:
    return _percent(left_out["median"]) + (f" ({100 * shipped['median']:.1f})" if shipped else "")


def _systems(results: dict[str, Any]) -> list[list[str]]:
    shipped = results["shipped"]["systems"]
    return [
        [slug, *(_signed(scores.get(c), shipped.get(slug, {}).get(c)) for c in CLASSES)]
        for slug, scores in results["left_out"]["systems"].items()
    ]


def _signed(left_out: dict[str, float] | None, shipped: dict[str, float] | None) -> str:
    if left_out is None:
        return ""
    inside = "" if shipped is None else f" ({100 * shipped['median']:.0f})"
    return f"{100 * left_out['median']:.0f} %{inside}"


def above(results: dict[str, Any], share: float = HIGH) -> dict[str, dict[str, float]]:
    """Return the signed errors of systems above ``share`` in some class, left out of the fit or as shipped."""
    high: dict[str, dict[str, float]] = {}
    for answer in (results["shipped"], results["left_out"]):
        for slug, scores in answer["systems"].items():
            for size_class, score in scores.items():
                if score["median"] > share:
                    high.setdefault(slug, {})[size_class] = score["signed"]
    return high


def explained(results: dict[str, Any], reasons: dict[str, dict[str, Any]]) -> str:
    """Return a paragraph for each system with a large error. Raise KeyError if a system has no reason."""
    lines = []
    for slug, classes in above(results).items():
        errors = ", ".join(f"{name} {error:+.0%}" for name, error in classes.items())
        text = f"* **{slug}** ({errors}): {' '.join(reasons[slug]['reason'].split())} {_evidence(reasons[slug])}"
        lines.append(fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
    return "\n".join(lines) + "\n"


def _evidence(reason: dict[str, Any]) -> str:
    """Return the evidence of a reason: quoted words of the source, and keys that no source states."""
    quoted = ", ".join(f"`{words}`" for words in reason["shown"])
    assumed = f"; not stated: {', '.join(f'`{key}`' for key in reason['assumed'])}" if reason["assumed"] else ""
    return f"Evidence: {quoted}{assumed} ({reason['source']})."


def readme_table() -> str:
    """Return the README's table of median errors, by the systems that the fit did not use."""
    scores = read_results("nccl_errors")["left_out"]["classes"]
    _, later, _, held_out = score_unseen().values()
    rows = [["the system itself", *(_percent(scores[c]["median"]) for c in CLASSES)]]
    for population, judged in (("10 later authors", later), ("5 authors held out from all fits", held_out)):
        errors = (f"{100 * (judged[c].median or 0):.0f} %" for c in CLASSES)
        rows.append([f"any system by the same author: {population}", *errors])
    return table("predicted without using | up to 64 KiB: | up to 16 MiB: | larger:", rows)


def _explained_now() -> str:
    return explained(read_results("nccl_errors"), tomllib.loads(EXPLAINED.read_text(encoding="utf-8")))


PARTS: Parts = {
    "docs/reports/nccl-systems.md": {
        "measured": lambda: measured(read_results("nccl_errors")),
        "explained": _explained_now,
    },
    "README.md": {"accuracy": readme_table},
}
