"""Measure the errors of NCCL predictions on published tables, and those of baselines.

One baseline is torch's own estimator, ``torch._inductor.comm_analysis``, with which Inductor orders the communication
of a compiled model. It takes bytes, ranks and a collective, and reads all else from the machine that it runs on: the
GPU's compute capability, GPUs per host, and whether ``nvidia-smi`` shows NVLink. These three are replaced for other
machines. Bandwidths are the estimator's defaults.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import viz
from benchmarks.accuracy.judging import ClassScore, Judged, SystemScore, baseline_medians, score_classes, score_systems
from benchmarks.accuracy.nccl import (
    Baseline,
    Gain,
    alpha_beta,
    compare_series,
    describe_choices,
    judged_series,
    measure_gains,
    model_predictor,
    tuner_formula,
)
from benchmarks.accuracy.tables import MeasuredTable, read_table
from collectives.checks import check_path
from collectives.errors import InputError, NotKnown
from collectives.quoting import name_some
from collectives.units import count, format_size
from realcomm.launching.torch_process import importing_compiler, is_installed
from ringlab.shared.answer import Answer, to_plain
from ringlab.shared.progress import Progress, computing
from ringlab.table import NOTHING, Part, Sentences, Table, format_or_dash
from simcomm.nccl.descriptions import OWN_DATA, System, put_aside, read_systems
from simcomm.nccl.measured.tables import LEAST_BANDWIDTH
from simcomm.nccl.parameters import Parameters

Floats = NDArray[np.float64]
LARGE_SPREAD = 2.0  # between times of one size, from which on it is worth saying
CLASS_TITLES = {"small": "up to 64 KiB", "mid": "up to 16 MiB", "large": "above"}
SHOWN = 6  # choices of sizes to measure
BASELINES = {"torch": "torch's estimator", "tuner": "NCCL's tuner formula", "alpha-beta": "alpha and beta, ring"}


@dataclass(frozen=True, repr=False)
class AccuracyAnswer(Answer):
    """Predicted and measured times, and their scores. Errors are fractions."""

    directory: str
    fit: str  # with which parameters
    judged: Judged
    notes: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()  # of a few measured rows, the best choice of sizes first
    classes: dict[str, ClassScore] = field(init=False)
    systems: dict[str, dict[str, SystemScore]] = field(init=False)
    baselines: dict[str, dict[str, float | None]] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the scores."""
        object.__setattr__(self, "classes", score_classes(self.judged))
        object.__setattr__(self, "systems", score_systems(self.judged))
        object.__setattr__(self, "baselines", baseline_medians(self.judged))

    def by(self, key: str) -> dict[str, dict[str, ClassScore]]:
        """Return the scores by "family" or by "collective"."""
        return {name: score_classes(part) for name, part in sorted(self.judged.by(key).items())}

    def draw(self, path: Path | str) -> None:
        """Draw predicted against measured times as .png, .svg or .pdf. Raise InputError for another suffix."""
        dots = [
            viz.Dots(f"{name}: {CLASS_TITLES[name]}", family, list(part.measured), list(part.predicted))
            for name in CLASS_TITLES
            for (family, *_), part in self.judged.take(self.judged.keys["class"] == name)
            .by("family", "system", "collective")
            .items()
        ]
        subtitle = f"{len(self.systems)} systems, parameters: {self.fit}; grey: off by less than a factor of 1.3"
        viz.write_figure(viz.accuracy_figure("NCCL: predicted and measured", subtitle, dots), path)

    def to_dict(self) -> dict[str, Any]:
        """Return scores and gains by known rows as plain JSON. Errors are fractions."""
        content: dict[str, Any] = {"classes": self.classes, "systems": self.systems, "baselines": self.baselines}
        return {
            key: to_plain(value) for key, value in (content | ({"gains": self.gains} if self.gains else {})).items()
        }

    def show(self) -> Iterator[Part]:
        """Yield the errors of all systems, of baselines, by family and collective, and of each system."""
        titles = [f"{name}: {title}" for name, title in CLASS_TITLES.items()]
        yield Table(f"NCCL on {self.directory}: errors", ["", *titles], self._overview())
        for key in ("family", "collective"):
            rows = [[name, *_cells(scores)] for name, scores in self.by(key).items()]
            yield Table(f"By {key}: median error (systems)", [key, *CLASS_TITLES], rows)
        rows = [
            [slug, *(_signed(scores[name]) if name in scores else NOTHING for name in CLASS_TITLES)]
            for slug, scores in self.systems.items()
        ]
        yield Table("By system: median error (with its sign)", ["system", *CLASS_TITLES], rows)
        if self.gains:
            best = self.gains[0]
            rows = [[_sizes(gain.sizes), *_cells(gain.after)] for gain in self.gains[:SHOWN]]
            rows.append([f"none known, on the rows of {_sizes(best.sizes)}", *_cells(best.before)])
            title = f"After {len(best.sizes)} measured rows: median error (systems) of the others"
            yield Table(title, ["sizes to measure", *CLASS_TITLES], rows)
        fit = f"Parameters: {self.fit}. An error is |predicted / measured - 1|."
        yield Sentences([*self.notes, fit])

    def _overview(self) -> list[list[str]]:
        scores = self.classes.values()
        baselines = {BASELINES.get(name, name): medians.values() for name, medians in self.baselines.items()}
        rows = {
            "median over systems": [score.median for score in scores],
            "mean, errors above 100 % as 100 %": [score.mean_capped for score in scores],
            "rows within their 80 % interval": [score.coverage80 for score in scores],
        }
        shown = [
            [name, *(format_or_dash(value, format_percent) for value in row)]
            for name, row in (rows | baselines).items()
        ]
        shown.insert(len(rows), ["systems", *(str(score.systems) for score in scores)])
        return shown


def accuracy(
    data: Path | str | None = None,
    *,
    only_held_out: bool = False,
    calibrate: int = 0,
    parameters: Mapping[str, Parameters] | None = None,
    progress: Progress | None = None,
) -> AccuracyAnswer:
    """Predict every table in a directory from the description of its system. Default: the published tables.

    A directory has ``systems_described.toml`` and ``<slug>.csv``. Systems in its ``put_aside.txt`` are left out, unless
    only they are requested. ``calibrate`` is the number of known rows per table. ``parameters`` replace the shipped
    ones of some systems. Raises InputError if no table can be predicted.
    """
    directory = OWN_DATA if data is None else check_path("data", data)
    systems, tables, notes = read_judged(directory, only_held_out)
    fit, values = "as shipped" if parameters is None else "given", parameters or {}
    baselines: dict[str, Baseline] = {"tuner": tuner_formula, "alpha-beta": alpha_beta}
    if is_installed("torch"):
        baselines = {"torch": torch_estimate, **baselines}
    with computing(progress, f"predicting the tables of {count(len(tables), 'system')}"):
        compared = compare_series(judged_series(systems, tables), model_predictor(values), baselines)
        gains = measure_gains(systems, tables, calibrate, values) if calibrate else []
        few = [f"no table has the rows that --calibrate {calibrate} would know, and others"] * (
            not gains and calibrate > 0
        )
        notes = (*notes, *few, *describe_choices(systems, tables))
    return AccuracyAnswer("its own tables" if data is None else str(data), fit, compared, notes, tuple(gains))


def read_judged(
    directory: Path, only_held_out: bool = False
) -> tuple[dict[str, System], dict[str, MeasuredTable], tuple[str, ...]]:
    """Return the evaluated systems and tables of a directory, and notes about the others."""
    left_out: dict[str, NotKnown] = {}
    systems = read_systems(directory, left_out.__setitem__)
    if not systems:
        raise InputError(f"no system left to predict: {next(iter(left_out.values()))}")
    hidden = put_aside(directory)
    files = sorted(path.stem for path in directory.glob("*.csv") if path.stem != "systems")
    measured_slugs = [slug for slug in systems if slug in files]
    if not measured_slugs:
        raise InputError(f"{directory}: no table <slug>.csv found for any system in {directory}/systems_described.toml")
    judged = [slug for slug in measured_slugs if (slug in hidden) == only_held_out and not systems[slug].skip]
    chosen = [slug for slug in judged if systems[slug].ranks > 1]
    aside = [] if only_held_out else [slug for slug in measured_slugs if slug in hidden]
    tables = {slug: read_table(directory / f"{slug}.csv") for slug in chosen}
    lists = {
        "one rank alone, which communicates with nobody": [slug for slug in judged if slug not in chosen],
        "described, without a table": [slug for slug in systems if slug not in measured_slugs],
        "tables that are not described, and not looked at": [
            slug for slug in files if slug not in systems and slug not in left_out
        ],
        "described with skip, and not predicted": [slug for slug in measured_slugs if systems[slug].skip],
    }
    if not any(judged_series(systems, tables)):
        raise InputError(f"{directory}: no table left to predict: {_why_none(lists, aside, only_held_out)}")
    notes = [f"{title}: {', '.join(slugs)}" for title, slugs in lists.items() if slugs]
    notes += describe_left_out([*left_out.values()], "systems")
    if aside:
        notes.append(f"{len(aside)} systems are held out and not looked at")
    return systems, tables, (*notes, *_notes_on_rows(systems, tables))


def describe_left_out(left_out: Sequence[NotKnown], subject: str) -> list[str]:
    """Return a note on the number of series or systems that are left out, with the reasons and the first names."""
    if not left_out:
        return []
    return [f"left out, {subject} of names that are not known: {len(left_out)}: {name_some(left_out, '; ')}"]


def _why_none(lists: Mapping[str, Sequence[str]], aside: Sequence[str], only_held_out: bool) -> str:
    reasons = [f"{title}: {', '.join(slugs)}" for title, slugs in lists.items() if slugs]
    reasons += [f"held out: {', '.join(aside)}"] if aside else []
    reasons += ["nothing is held out here"] if only_held_out else []
    return "; ".join(reasons) or "no row has a time, or a bandwidth that tells one"


def _notes_on_rows(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[str]:
    notes = []
    dropped = {slug: count for slug, table in tables.items() if (count := table.dropped(systems[slug].ranks))}
    if dropped:
        each = ", ".join(f"{slug} ({count})" for slug, count in dropped.items())
        notes.append(
            f"{sum(dropped.values())} rows of no bytes, or without a time and below {LEAST_BANDWIDTH} GB/s, "
            f"are not counted: {each}"
        )
    for slug, table in tables.items():
        if odd := sum(not row.fits(systems[slug].ranks) for row in table.rows):
            notes.append(f"{slug}: busbw of {odd} rows does not follow from algbw for {systems[slug].ranks} ranks")
        if (spread := table.spread(systems[slug].ranks)) > LARGE_SPREAD:
            notes.append(f"{slug}: one size of a collective is there several times, up to {spread:.0f} times apart")
    return notes


def torch_estimate(system: System, collective: str, nbytes: Floats) -> Floats | None:
    """Return the estimate of torch's estimator for a system; None if it has none."""
    if system.gpu.generation == "cpu":
        return None
    machine = TorchMachine(system.gpu.generation, system.gpus, system.link in ("nvswitch", "mesh", "bridge"))
    times = estimate_with_torch(machine, collective, system.ranks, [int(size) for size in nbytes])
    return None if times is None else np.array(times)


def format_percent(share: float, sign: str = "") -> str:
    """Return a share as a percentage for tables of errors, with an exponent above a factor of a thousand.

    >>> format_percent(0.1234), format_percent(12345.6)
    ('12.3 %', '1.2e+06 %')
    """
    return f"{100 * share:{sign}{'.1f' if abs(share) < 1000 else '.1e'}} %"


def _sizes(sizes: Sequence[float]) -> str:
    return ", ".join("the largest" if size == inf else format_size(size) for size in sizes)


def _cells(scores: Mapping[str, ClassScore]) -> list[str]:
    return [
        NOTHING if score.median is None else f"{format_percent(score.median)} ({score.systems})"
        for score in scores.values()
    ]


def _signed(score: SystemScore) -> str:
    return f"{format_percent(score.median)} ({score.signed:+.0%})"


GPU_TYPES = {  # by generation, as its get_gpu_type finds them by compute capability; else it takes Ampere
    "volta": "VOLTA", "turing": "VOLTA", "ampere": "AMPERE", "ada": "AMPERE", "hopper": "HOPPER",
    "blackwell": "BLACKWELL", "cdna": "HOPPER",
}  # fmt: skip
KERNEL_NAMES = {"send_recv": "batch_p2p"}


@dataclass(frozen=True)
class TorchMachine:
    """The properties of a host that the estimator reads: GPUs, their generation, and whether NVLink connects them."""

    generation: str
    gpus: int
    has_nvlink: bool


def estimate_with_torch(machine: TorchMachine, collective: str, ranks: int, sizes: Sequence[int]) -> list[float] | None:
    """Return torch's estimates in seconds; None for a collective without estimate.

    ``sizes`` are those of nccl-tests. Inductor passes the input of an all_gather, so the size is that of all inputs
    together.

    >>> estimate_with_torch(TorchMachine("hopper", 8, True), "reduce", 8, [1024]) is None
    True
    """
    with importing_compiler():
        from torch._inductor import comm_analysis  # slow to import

    kind = comm_analysis.get_collective_type_from_kernel_name(KERNEL_NAMES.get(collective, collective))
    if kind == comm_analysis.NCCL_COLL.UNSUPPORTED:
        return None
    inputs = [max(1, size // ranks) for size in sizes] if collective == "all_gather" else sizes
    with _on(machine, comm_analysis):
        return [comm_analysis.estimate_nccl_collective_runtime_impl(size, ranks, kind) / 1e3 for size in inputs]


@contextmanager
def _on(machine: TorchMachine, comm_analysis: Any) -> Iterator[None]:
    gpu_type = comm_analysis.NVIDIA_GPU_TYPE[GPU_TYPES.get(machine.generation, "AMPERE")]
    with ExitStack() as stack:
        for target, name, value in (
            (comm_analysis, "get_gpu_type", gpu_type),
            (comm_analysis, "_has_nvlink", machine.has_nvlink),
            (comm_analysis.torch.cuda, "is_available", True),
            (comm_analysis.torch.cuda, "device_count", machine.gpus),
        ):
            stack.enter_context(patch.object(target, name, return_value=value))
        yield
