"""How far predictions are from what emulated clusters on this machine do."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import viz
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import Calibration, MachineLoad, PairProbes, read_pair
from collectives.records.environment import describe_environment
from collectives.units import format_size
from realcomm.calibration.load import watch_load
from ringlab.emulated import WITHIN, EmulatedCalibrator, EmulatedRow, compare_here, name_of, on_emulated
from ringlab.shared.answer import Answer
from ringlab.shared.progress import NoProgress, Progress
from ringlab.table import NOTHING, Part, Sentences, Table, time_unit
from scenarios import LoadedScenario, load, shipped

SHOWN = 12  # of the rows that are off by most


@dataclass(frozen=True)
class Errors:
    """The absolute errors of some rows."""

    rows: int
    median: float
    p90: float  # nine in ten are not larger
    worst: float
    within: float  # share of rows whose error is at most ``WITHIN``
    as_stated: float | None = None  # share of rows that are within their stated uncertainty

    def cells(self) -> list[str]:
        """Return them as a table shows them."""
        return [
            str(self.rows),
            *(f"{100 * share:.1f} %" for share in (self.median, self.p90, self.worst)),
            f"{self.within:.0%}",
            NOTHING if self.as_stated is None else f"{self.as_stated:.0%}",
        ]


@dataclass(frozen=True, repr=False)
class AccuracyHere(Answer):
    """All rows of the scenarios that were emulated, the scenarios that were not with the reason, and the seconds."""

    kind = "accuracy here"

    rows: tuple[EmulatedRow, ...]
    refused: dict[str, str]
    seconds: float
    environment: dict[str, str | int] = field(default_factory=describe_environment)
    pairs: tuple[dict[str, Any], ...] = ()  # what the predictions were calibrated by
    crowds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rounds more, by scenario
    loads: dict[str, MachineLoad] = field(default_factory=dict)  # what else this machine did, by scenario

    def by(self, key: Callable[[EmulatedRow], str]) -> dict[str, Errors]:
        """Return the errors of the rows that have the same key, in the order in which the keys come."""
        groups: dict[str, list[EmulatedRow]] = {}
        for row in self.rows:
            if row.error is not None:
                groups.setdefault(key(row), []).append(row)
        return {name: _errors(rows) for name, rows in groups.items()}

    @property
    def views(self) -> dict[str, dict[str, Errors]]:
        """The errors of all rows, by algorithm, by size and by scenario."""
        return {
            "all": self.by(lambda row: "all rows"),
            "algorithm": self.by(lambda row: row.what),
            "size": self.by(lambda row: "training" if row.bytes is None else format_size(row.bytes)),
            "scenario": self.by(lambda row: row.scenario),
        }

    @property
    def busy(self) -> str:
        """When this machine was busy, and with what; empty where it was not."""
        found = {name: load for name, load in self.loads.items() if load.is_busy}
        if not found:
            return ""
        worst = max(found.values(), key=lambda load: load.others + load.steal)
        marked = sum(row.is_busy for row in self.rows)
        return (
            f"This machine was busy during {', '.join(found)}: {worst.describe()}. {marked} of {len(self.rows)} rows "
            "are marked; measure again when it is idle."
        )

    def draw(self, path: Path | str) -> None:
        """Draw predicted against measured times, a panel a size, as .png, .svg or .pdf. Raise InputError."""
        known = [row for row in self.rows if row.predicted_s is not None]
        panels = dict.fromkeys(_panel(row) for row in known)
        dots = [
            viz.Dots(panel, what, *_times([row for row in known if (_panel(row), row.what) == (panel, what)]))
            for panel in panels
            for what in dict.fromkeys(row.what for row in known if _panel(row) == panel)
        ]
        subtitle = (
            f"{len(dict.fromkeys(row.scenario for row in known))} clusters emulated, calibrated on two hosts; grey: "
            "off by less than a factor of 1.3"
        )
        viz.write_figure(viz.accuracy_figure("Predicted and measured here", subtitle, dots), path)

    def to_dict(self) -> dict[str, Any]:
        """Return rows and errors as plain JSON."""
        views = {view: {name: asdict(errors) for name, errors in groups.items()} for view, groups in self.views.items()}
        return super().to_dict() | {"errors": views, "rows": [_plain(row) for row in self.rows]}

    def show(self) -> Iterator[Part]:
        """Yield the errors of all rows, by algorithm, size and scenario, and the rows that are off by most."""
        headings = ["rows", "median", "nine in ten", "worst", f"within {WITHIN:.0%}", "as stated"]
        for key, groups in self.views.items():
            is_all = key == "all"
            title = "Emulated clusters: errors" if is_all else f"By {key}"
            shown = [[name, *errors.cells()] for name, errors in groups.items()]
            yield Table(title, ["" if is_all else key, *headings], shown)
        known = [(abs(row.error), row) for row in self.rows if row.error is not None]
        worst = [row for _, row in sorted(known, key=lambda one: -one[0])[:SHOWN]]
        unit, form = time_unit(seconds for row in worst for seconds in (row.predicted_s, row.measured_s))
        shown = [
            [
                row.scenario,
                row.what,
                NOTHING if row.bytes is None else format_size(row.bytes),
                *map(form, (row.predicted_s or 0.0, row.measured_s)),
                f"{row.error or 0.0:+.0%}",
            ]
            for row in worst
        ]
        headings = ["scenario", "what", "size", f"predicted\n({unit})", f"measured\n({unit})", "error"]
        yield Table("Off by most", headings, shown, words=2)
        refused = [f"{name} was not measured: {reason}" for name, reason in self.refused.items()]
        said = (
            f"{len(self.rows)} rows in {self.seconds:.0f} s. An error is |predicted / measured - 1|; as stated: "
            "within the uncertainty of the prediction, which should hold for four of five."
        )
        yield Sentences([*refused, said, *filter(None, [self.busy])])


def _errors(rows: Sequence[EmulatedRow]) -> Errors:
    stated = [row.is_as_stated for row in rows if row.is_as_stated is not None]
    found = summarise([abs(row.error) for row in rows if row.error is not None])
    return replace(found, as_stated=sum(stated) / len(stated) if stated else None)


def summarise(errors: Sequence[float]) -> Errors:
    """Return what absolute errors come to.

    >>> summarise([0.01, 0.02, 0.3]).median
    0.02
    """
    values = np.array(errors)
    p90 = float(np.quantile(values, 0.9))
    return Errors(len(values), float(np.median(values)), p90, float(values.max()), float((values <= WITHIN).mean()))


def accuracy_here(names: Sequence[str] = (), *, progress: Progress | None = None) -> AccuracyHere:
    """Emulate scenarios, unless said all under ``emulated/``, and return predictions beside what was measured.

    Predictions are calibrated on two emulated hosts for each rate of links, and what cores do once more before each
    later scenario: on two hosts for collectives, in as many processes as there are cores for trainings. Nothing that is
    measured here takes part. Rows are marked where other processes took the cores meanwhile. A scenario that this
    machine did not bear is left out, with the reason; after an interrupt, those that follow are too. Raises InputError,
    and RunFailed where nothing can be emulated.

    >>> accuracy_here(["emulated/star4"]).by(lambda row: row.what)["ring"].median < 0.2  # doctest: +SKIP
    True
    """
    progress = NoProgress() if progress is None else progress
    chosen = [on_emulated(load(name)) for name in names or [name for name in shipped() if name.startswith("emulated/")]]
    return measure_here([(name_of(scenario), scenario) for scenario in chosen], None, progress)


def measure_here(
    scenarios: Sequence[tuple[str, LoadedScenario]], computing: Calibration | None, progress: Progress
) -> AccuracyHere:
    """Return predictions of named scenarios beside what was measured; ``computing`` is of what ranks compute, if known.

    Raises InputError, and RunFailed where nothing can be emulated.
    """
    begin = time.monotonic()
    calibrator = EmulatedCalibrator(progress, computing)
    rows, loads, refused = list[EmulatedRow](), dict[str, MachineLoad](), dict[str, str]()
    for name, scenario in scenarios:
        try:
            with watch_load() as watch:
                found = compare_here(scenario, calibrator.calibrate(scenario), refused, progress)
            if machine := watch.share_of_others():
                loads[name] = machine
                found = [replace(row, is_busy=machine.is_busy) for row in found]
            rows += found
        except KeyboardInterrupt:
            if not rows:
                raise
            refused[name] = "interrupted, as were all that follow"
            break
        except (RunFailed, InputError) as error:
            refused[name] = str(error)
            progress.note(f"warning: {name}: {error}")
    if not rows:
        raise RunFailed("; ".join(refused.values()))
    pairs = tuple(asdict(pair) for pair in calibrator.pairs.values())
    crowds = {name: [asdict(one) for one in rounds] for name, rounds in calibrator.crowds.items()}
    return AccuracyHere(tuple(rows), refused, time.monotonic() - begin, pairs=pairs, crowds=crowds, loads=loads)


def pair_before(found: dict[str, Any], scenario: str, bandwidth: float) -> PairProbes:
    """Return the probes that predicted a scenario, whose hosts have links of ``bandwidth`` bytes/s, in such JSON."""
    pair = next(one for one in found["pairs"] if one["bandwidth"] == bandwidth)
    return read_pair({**pair, "crowds": [*pair["crowds"], *found.get("crowds", {}).get(scenario, [])]})


def _plain(row: EmulatedRow) -> dict[str, Any]:
    found = asdict(row) | {"error": row.error}
    if row.lateness is not None:
        found["lateness"] = row.lateness._asdict() | {"cause": row.lateness.cause}
    return found


def _panel(row: EmulatedRow) -> str:
    return "training" if row.bytes is None else format_size(row.bytes)


def _times(rows: Sequence[EmulatedRow]) -> tuple[list[float], list[float]]:
    return [row.measured_s for row in rows], [row.predicted_s for row in rows if row.predicted_s is not None]
