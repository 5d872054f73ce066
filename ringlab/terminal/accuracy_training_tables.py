"""The tables of ``accuracy --training``."""

from rich.console import Console

from collectives.units import count
from ringlab.answers.accuracy_training import TrainingAccuracy
from ringlab.table import NOTHING, Row, make_table, show_sentences
from simcomm.accuracy.judging import Score

# Broken, so that a family's name finds room in 80 columns.
HEADINGS = ["points", "median", "nine\nin ten", "within\n15 %", "bias", "in\n50 %", "in\n80 %", "in\n90 %"]
MOST_IN_FULL = 1000.0  # of an error: larger ones as 1.2e+06 %


def show_accuracy_training(answer: TrainingAccuracy, console: Console, explain: bool = False) -> None:
    """Print the errors of all points and of the hard ones, beside the baselines, by family and by GPU count."""
    rows = [[name, *_cells(score)] for name, score in answer.points.items()]
    console.print(make_table(f"Trainings of {answer.directory}: errors", ["", *HEADINGS], rows, words=1))
    simpler = [
        [name, *(_percent(errors[what][key]) for what in ("all", "hard") for key in ("median", "p90"))]
        for name, errors in answer.baselines.items()
    ]
    titles = ["", "median,\nall", "nine\nin ten", "median,\nhard", "nine\nin ten"]
    console.print(make_table("Simpler predictions", titles, simpler, words=1))
    for key, title in (("family", "family"), ("gpus", "GPUs")):
        groups = [[name, *_cells(score)] for name, score in answer.by(key).items()]
        console.print(make_table(f"By {title}", [title, *HEADINGS], groups, words=1))
    fit = (
        f"{answer.series} series of {count(answer.sources, 'source')}; parameters: {answer.fit}. "
        "An error is |predicted / measured - 1|; hard: measured below 0.9 of linear."
    )
    show_sentences(console, [*answer.notes, fit], explain=explain, wrap=False)


def _cells(score: Score) -> Row:
    shares = (score.within15, score.coverage50, score.coverage80, score.coverage90)
    within, *held = [NOTHING if share is None else f"{share:.0%}" for share in shares]
    return [str(score.n), _percent(score.median), _percent(score.p90), within, _percent(score.bias, "+"), *held]


def _percent(share: float | None, sign: str = "") -> str:
    if share is None:
        return NOTHING
    return f"{100 * share:{sign}{'.1f' if abs(share) < MOST_IN_FULL else '.1e'}} %"
