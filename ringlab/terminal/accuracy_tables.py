"""The tables of ``accuracy``."""

from collections.abc import Mapping, Sequence
from math import inf

from rich.console import Console
from rich.table import Table

from collectives.units import format_size
from ringlab.answers.accuracy import CLASS_TITLES, AccuracyAnswer
from ringlab.table import NOTHING, Row, format_or_dash, make_table, show_sentences
from simcomm.accuracy.calibration_gain import Gain
from simcomm.accuracy.judging import ClassScore, SystemScore

SHOWN = 6  # choices of sizes to measure
BASELINES = {"torch": "torch's estimator", "tuner": "NCCL's tuner formula", "alpha-beta": "alpha and beta, ring"}


def show_accuracy(answer: AccuracyAnswer, console: Console, explain: bool = False) -> None:
    """Print the errors of all systems together, beside the baselines, by family and collective, and of each system."""
    titles = [f"{name}: {title}" for name, title in CLASS_TITLES.items()]
    console.print(make_table(f"NCCL on {answer.directory}: errors", ["", *titles], _overview(answer), words=1))
    for key in ("family", "collective"):
        groups = [[name, *_cells(scores)] for name, scores in answer.by(key).items()]
        console.print(make_table(f"By {key}: median error (systems)", [key, *CLASS_TITLES], groups, words=1))
    systems = [
        [slug, *(_signed(scores[name]) if name in scores else NOTHING for name in CLASS_TITLES)]
        for slug, scores in answer.systems.items()
    ]
    console.print(make_table("By system: median error (with its sign)", ["system", *CLASS_TITLES], systems, words=1))
    if answer.gains:
        console.print(_gains_table(answer.gains))
    fit = f"Parameters: {answer.fit}. An error is |predicted / measured - 1|."
    show_sentences(console, [*answer.notes, fit], explain=explain, wrap=False)


def _overview(answer: AccuracyAnswer) -> list[Row]:
    scores = answer.classes.values()
    rows: list[Row] = [
        ["median over systems", *(format_or_dash(score.median, _percent) for score in scores)],
        ["mean, errors above 100 % as 100 %", *(format_or_dash(score.mean_capped, _percent) for score in scores)],
        ["rows within their 80 % interval", *(format_or_dash(score.coverage80, _percent) for score in scores)],
        ["systems", *(str(score.systems) for score in scores)],
    ]
    for name, medians in answer.baselines.items():
        rows.append([BASELINES.get(name, name), *(format_or_dash(median, _percent) for median in medians.values())])
    return rows


def _gains_table(gains: Sequence[Gain]) -> Table:
    """Return the errors on the other rows after a few are known, the best choices of sizes first."""
    best = gains[0]
    rows = [[_sizes(gain.sizes), *_cells(gain.after)] for gain in gains[:SHOWN]]
    rows.append([f"none known, on the rows of {_sizes(best.sizes)}", *_cells(best.before)])
    title = f"After {len(best.sizes)} measured rows: median error (systems) of the others"
    return make_table(title, ["sizes to measure", *CLASS_TITLES], rows, words=1)


def _sizes(sizes: Sequence[float]) -> str:
    return ", ".join("the largest" if size == inf else format_size(size) for size in sizes)


def _cells(scores: Mapping[str, ClassScore]) -> Row:
    return [
        NOTHING if score.median is None else f"{_percent(score.median)} ({score.systems})" for score in scores.values()
    ]


def _signed(score: SystemScore) -> str:
    return f"{_percent(score.median)} ({score.signed:+.0%})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
