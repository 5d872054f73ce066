"""``ringlab predict --sweep``: predict a scenario for several values of a key."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len

import scenarios
import viz
from collectives.checks import check_text
from collectives.errors import InputError
from collectives.quoting import cut, quote
from collectives.removed import WHAT_IFS, describe_removed
from collectives.units import count, format_size, parse_size
from ringlab.commands.predicting.prediction import Prediction, predict
from ringlab.session import Session, session_of
from ringlab.shared.answer import Answer
from ringlab.shared.conclusions import describe_crossovers
from ringlab.shared.progress import Progress, keeping
from ringlab.shared.ranges import MOST_CASES
from ringlab.table import Line, Part, Table, format_or_dash, time_unit
from scenarios.loader import read_title
from simcomm.parallel import in_any_order

SIZES = "collective.sizes"
KEYS = {  # short names of keys that --what-if varies
    "preset": "cluster.preset", "nodes": "cluster.nodes", "bandwidth": "cluster.bandwidth",
    "latency": "cluster.latency", "model": "training.model", "batch": "training.batch_size",
    "batch_size": "training.batch_size",
    "sequence": "training.sequence", "precision": "training.precision", "optimizer": "training.optimizer",
    "framework": "training.framework", "price": "training.price_per_hour", "algorithm": "training.gradient_sync",
    "strategy": "training.parallelism.strategy", "bucket": "training.parallelism.bucket_mb",
}  # fmt: skip
FACTOR = 2.0  # default factor between the values of a range
ACCEPTED = "a range such as 1..100Gbit/s or 2..64*4, or a list such as 1,2,8"
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})\s*([^*\d][^*]*)?(?:\*\s*({_NUMBER}))?")


class SweepPoint(NamedTuple):
    value: str
    prediction: Prediction


@dataclass(frozen=True, repr=False)
class SweepAnswer(Answer):
    """The result of ``ringlab predict --sweep``."""

    kind: ClassVar[str] = "sweep"

    title: str
    file: str
    key: str
    points: tuple[SweepPoint, ...]
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        points = list[dict[str, Any]]()
        for point in self.points:
            content = point.prediction.to_dict()
            names = ("cluster", "collectives", "training", "what_if")
            points.append({"value": point.value} | {name: content[name] for name in names if name in content})
        return super().to_dict() | {"points": points}

    def show(self) -> Iterator[Part]:
        lines, values = self.lines(), [point.value for point in self.points]
        unit, form = time_unit(seconds for line in lines.values() for seconds in line.values())
        rows = [[value, *(format_or_dash(line.get(value), form) for line in lines.values())] for value in values]
        headings = ["\n".join([*name.split(", "), f"({unit})"]) for name in lines]
        letters = max((cell_len(part) for heading in headings for part in heading.split("\n")), default=0) + 2
        yield Table(self.title, [self.key, *headings], rows, letters=letters)
        if self.key == SIZES:
            entries = (entry for point in self.points for entry in point.prediction.collectives)
            yield from (Line(text, wrap=True) for text in describe_crossovers(self.title, entries))
        if self.interrupted:
            yield f"Stopped after {count(len(values), 'value')}."

    def lines(self) -> dict[str, dict[str, float | None]]:
        """Return the curves of the plot by name. Each curve maps the values of the key to predicted seconds.

        Each training has a curve, and each algorithm has one per size. In a sweep of sizes, each algorithm has a single
        curve, and training runs have none, because their times do not change. None means that a run never ends.
        """
        lines = dict[str, dict[str, float | None]]()
        for point in self.points:
            for row in point.prediction.collectives:
                name = row.algorithm if self.key == SIZES else f"{row.algorithm}, {format_size(row.bytes)}"
                lines.setdefault(name, {})[point.value] = row.time_s
            for step in point.prediction.training if self.key != SIZES else ():
                lines.setdefault(f"step with {step.gradient_sync}", {})[point.value] = step.step_s
        return lines

    def draw(self, path: Path | str) -> None:
        """Plot the times against the key's values, as .png, .svg or .pdf. Raise InputError for any other suffix."""
        lines = [
            viz.SweepLine(name, [*map(_short_size, line)], [*line.values()]) for name, line in self.lines().items()
        ]
        viz.write_figure(viz.sweep_figure(self.title, self.key, lines), path)


def _short_size(value: str) -> str:
    """Return a size in its largest unit, and any other value unchanged."""
    try:
        return format_size(parse_size(value))
    except InputError:
        return value


def full_key(command: str, name: str) -> str:
    """Return the scenario key for a short name in ``--what-if``. Raise InputError if the name was removed."""
    if removed := describe_removed(WHAT_IFS, f"{command} --what-if {name}"):
        raise InputError(removed)
    return KEYS.get(name, name)


def predict_sweep(
    scenario: str | Path,
    sweep: str,
    *overrides: str,
    calibration: Path | str | None = None,
    progress: Progress | None = None,
) -> SweepAnswer:
    """Predict a scenario with each value of a key, such as ``cluster.bandwidth=1..100Gbit/s``.

    The other arguments are those of ``load`` and ``predict``. The predictions run on all cores, unless
    ``joblib.parallel_config`` selects other workers. If interrupted, the values predicted so far are returned. Raises
    InputError if a value is invalid, and KeyboardInterrupt if there is no value yet.

    >>> found = predict_sweep("star8", "cluster.bandwidth=1..4Gbit/s", "collective.sizes=1 MiB")
    >>> [(point.value, round(point.prediction.collectives[1].time_s, 6)) for point in found.points]
    [('1 Gbit/s', 0.01482), ('2 Gbit/s', 0.00748), ('4 Gbit/s', 0.00381)]
    """
    session = session_of(progress, calibration=calibration)
    key, values = parse_sweep(sweep)
    every = [(*overrides, f"{key}={value}") for value in values]
    first, _ = (scenarios.load(scenario, each) for each in (every[0], every[-1]))  # report an invalid end immediately
    title = read_title(scenario, overrides, [f"{key}={values[0]}"])
    task = partial(_predict, str(scenario), replace(session, progress=Progress()))
    predictions = dict[int, Prediction]()
    task_text = f"predicting {title} with {len(values)} values of {key}"
    with session.computing(task_text) as tick, keeping(predictions) as interruption:
        for number, prediction in in_any_order(task, every):
            predictions[number] = prediction
            tick(0, len(predictions), len(values), f"values, {values[number]}")
    points = tuple(SweepPoint(values[number], predictions[number]) for number in sorted(predictions))
    return SweepAnswer(title=title, file=str(first.path), key=key, points=points, interrupted=interruption.came)


def _predict(name: str, session: Session, overrides: tuple[str, ...]) -> Prediction:
    return predict(scenarios.load(name, overrides), session)


def parse_sweep(text: str, option: str = "--sweep") -> tuple[str, list[str]]:
    """Parse ``KEY=VALUES`` into the key and a list of values. Raise InputError if the text is malformed.

    In a range, each value is twice the previous one. ``*4`` after the range changes the factor to 4. In a list, the
    unit may follow only the last number, as in ``1,2,4 Gbit/s``.

    >>> parse_sweep("cluster.bandwidth=1..5Gbit/s"), parse_sweep("cluster.hosts=2..32*4")
    (('cluster.bandwidth', ['1 Gbit/s', '2 Gbit/s', '4 Gbit/s', '5 Gbit/s']), ('cluster.hosts', ['2', '8', '32']))
    """
    key, equals, range_text = check_text(option, text, "cluster.bandwidth=1..100Gbit/s").partition("=")
    where = f"{option} {cut(text)}"
    if not equals or not key.strip() or not range_text.strip():
        raise InputError(f"{where}: write section.key=values, {ACCEPTED}")
    match = _RANGE.fullmatch(range_text.strip())
    if match:
        values = _grown(where, float(match[1]), float(match[2]), float(match[4] or FACTOR))
        unit = f" {match[3].strip()}" if match[3] else ""
        return key.strip(), [f"{value:.12g}{unit}" for value in values]
    if ".." in range_text:
        raise InputError(f"{where}: {quote(range_text)} is not a valid range; write {ACCEPTED}")
    listed = [value.strip() for value in range_text.split(",")]
    if not all(listed) or len(listed) > MOST_CASES:
        raise InputError(f"{where}: the list must have 1 to {MOST_CASES:,} values, none of them empty")
    return key.strip(), [value for value, _ in groupby(_with_unit(listed))]


def _with_unit(values: Sequence[str]) -> list[str]:
    """Append the unit of the last value to all others, if all others are numbers without a unit."""
    last = re.fullmatch(rf"({_NUMBER})\s*([A-Za-z/]+)", values[-1])
    if last is None or len(values) < 2 or not all(re.fullmatch(_NUMBER, value) for value in values[:-1]):
        return list(values)
    return [f"{value} {last[2]}" for value in (*values[:-1], last[1])]


def _grown(where: str, first: float, last: float, factor: float) -> Sequence[float]:
    if not (0 < first <= last < 1e300 and factor > 1):
        raise InputError(f"{where}: a range must increase from a positive number by a factor greater than 1")
    values = [first]
    while values[-1] * factor < last * (1 - 1e-9):
        values.append(values[-1] * factor)
        if len(values) > MOST_CASES:
            raise InputError(f"{where}: more than {MOST_CASES:,} values; use a larger factor")
    return values if last == first else [*values, last]
