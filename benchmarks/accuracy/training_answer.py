"""How far predictions of training on many GPUs are from published throughputs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import viz
from benchmarks.accuracy.judging import Judged, Score
from benchmarks.accuracy.nccl_answer import describe_left_out, format_percent
from benchmarks.accuracy.training import judge_frozen, score_baselines, score_by, score_points
from collectives.checks import check_path
from collectives.errors import InputError, NotKnown
from collectives.quoting import name_some, quote
from collectives.units import count
from ringlab.shared.answer import Answer
from ringlab.shared.progress import Progress, computing
from ringlab.table import NOTHING, Part, Sentences, Table
from simcomm.scaling.descriptions import OWN_DATA, Point, Series, is_known_precision, put_aside, read_series

PANELS = {False: "0.9 of linear and above", True: "hard: below 0.9 of linear"}
# Broken, so that a family's name finds room in 80 columns.
HEADINGS = ["points", "median", "nine\nin ten", "within\n15 %", "bias", "in\n50 %", "in\n80 %", "in\n90 %"]

Errors = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, repr=False)
class TrainingAccuracy(Answer):
    """Predicted beside published throughputs, point by point, and their scores; errors are fractions."""

    directory: str
    fit: str  # with which parameters
    judged: Judged
    series: int
    sources: int
    notes: tuple[str, ...] = ()
    points: dict[str, Score] = field(init=False)
    baselines: Mapping[str, Errors] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the scores."""
        object.__setattr__(self, "points", score_points(self.judged))
        object.__setattr__(self, "baselines", score_baselines(self.judged))

    def by(self, key: str) -> dict[str, Score]:
        """Return the scores by "family", "gpus", "source", "system" or "model"."""
        return score_by(self.judged, key)

    def draw(self, path: Path | str) -> None:
        """Draw the predicted against the measured seconds of a step as .png, .svg or .pdf. Raise InputError."""
        one = self.judged
        dots = []
        for hard, panel in PANELS.items():
            for family, part in sorted(one.take(one.keys["hard"] == hard).by("family").items()):
                seconds = [list(part.keys["samples"] / rate) for rate in (part.measured, part.predicted)]
                dots.append(viz.Dots(panel, family, *seconds))
        subtitle = f"{self.series} series, parameters: {self.fit}; grey: off by less than a factor of 1.3"
        title = "A training step on many GPUs: predicted and published"
        viz.write_figure(viz.accuracy_figure(title, subtitle, dots), path)

    def to_dict(self) -> dict[str, Any]:
        """Return points and baselines as plain JSON; errors are fractions."""
        return {
            "points": {name: asdict(score) for name, score in self.points.items()},
            "baselines": self.baselines,
            "by": {key: {name: asdict(one) for name, one in self.by(key).items()} for key in ("family", "gpus")},
            "series": self.series,
            "sources": self.sources,
            "fit": self.fit,
        }

    def show(self) -> Iterator[Part]:
        """Yield the errors of all points and of the hard ones, beside the baselines, by family and by GPU count."""
        rows = [[name, *_cells(score)] for name, score in self.points.items()]
        yield Table(f"Trainings of {self.directory}: errors", ["", *HEADINGS], rows)
        rows = [
            [name, *(_percent(errors[what][key]) for what in ("all", "hard") for key in ("median", "p90"))]
            for name, errors in self.baselines.items()
        ]
        yield Table("Simpler predictions", ["", "median,\nall", "nine\nin ten", "median,\nhard", "nine\nin ten"], rows)
        for key, title in (("family", "family"), ("gpus", "GPUs")):
            rows = [[name, *_cells(score)] for name, score in self.by(key).items()]
            yield Table(f"By {title}", [title, *HEADINGS], rows)
        fit = (
            f"{self.series} series of {count(self.sources, 'source')}; parameters: {self.fit}. "
            "An error is |predicted / measured - 1|; hard: measured below 0.9 of linear."
        )
        yield Sentences([*self.notes, fit])


def _cells(score: Score) -> list[str]:
    shares = (score.within15, score.coverage50, score.coverage80, score.coverage90)
    within, *held = [NOTHING if share is None else f"{share:.0%}" for share in shares]
    return [str(score.n), _percent(score.median), _percent(score.p90), within, _percent(score.bias, "+"), *held]


def _percent(share: float | None, sign: str = "") -> str:
    return NOTHING if share is None else format_percent(share, sign)


def accuracy_training(
    data: Path | str | None = None, *, only_put_aside: bool = False, progress: Progress | None = None
) -> TrainingAccuracy:
    """Predict every series that a directory's ``series_described.toml`` describes; without one, the project's own.

    The parameters that are shipped have seen the project's own but for systems that are put aside, which
    ``only_put_aside`` judges alone. Raises InputError.

    >>> accuracy_training(only_put_aside=True).points["all"].n
    82
    """
    own = data is None
    if not own and only_put_aside:
        raise InputError("--put-aside applies to the series that Ringlab ships; omit --data or --put-aside")
    left_out = list[NotKnown]()
    series = read_series(OWN_DATA if data is None else check_path("data", data), left_out.append)
    if not series:
        raise InputError(f"no series left to predict: {left_out[0]}")
    notes = describe_left_out(left_out, "series")
    if own:
        hidden = put_aside()
        series = [one for one in series if one.system in hidden or not only_put_aside]
        notes.append(f"{count(len(hidden), 'system')} were put aside: no fit has seen them")
        if not only_put_aside:
            notes.append("the parameters have seen the other systems; docs/scaling.md says how far off they are unseen")
    alone = sum(len(one.points) == 1 for one in series)
    if alone == len(series):
        raise InputError(f"{data}: every series has a single point; at least two are needed")
    if alone:
        notes.append(f"{alone} series have one point only, and nothing to predict")
    notes += _oddities(series)
    with computing(progress, f"predicting {len(series)} series"):
        judged = judge_frozen(series)
    sources = len({one.source for one in series})
    return TrainingAccuracy(
        directory="its own series" if own else str(data),
        fit="as shipped",
        judged=judged,
        series=len(series),
        sources=sources,
        notes=tuple(notes),
    )


def _oddities(series: Sequence[Series]) -> Iterator[str]:
    """Yield what is odd about series, and how it is taken."""
    before, again = defaultdict[tuple[Point, ...], list[Series]](list), 0
    for one in series:
        again += one in before[one.points]
        before[one.points].append(one)
    if again:
        yield f"{again} series stand there again, and count again"
    unknown = sorted({one.job.precision for one in series if not is_known_precision(one.job.precision)})
    if unknown:
        named, is_one = name_some([*map(quote, unknown)]), len(unknown) == 1
        yield f"precision{'' if is_one else 's'} {named} {'is' if is_one else 'are'} not known, and taken as float32"
