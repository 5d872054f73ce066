"""Derive the widths of intervals for hardware that no published training run used.

    python -m benchmarks.studies.unseen_machines [--open]

``unseen_link``: each published nccl-tests system over PCIe or TCP is described again by its hosts, GPUs and NICs alone,
as users describe a machine that they have not rented. The largest all_reduce is compared with its prediction.

``unseen_several``: four published trainings on such machines (``benchmarks/accuracy/data/described/``) are predicted.
The deviation follows from the median errors of the trainings. Each training is judged by a deviation that follows from
the other three.

``unseen_gpu``: the published runs of language models on each GPU generation are predicted by a fit to the others.

With ``--open``, the first error is also computed for the held-out systems. Takes minutes.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import hypot, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from benchmarks.accuracy.meshes import mark_slow
from benchmarks.accuracy.nccl import judged_series
from benchmarks.accuracy.series import OWN_DATA, read_series
from benchmarks.accuracy.steps import Fitted, RunSteps, fit, fit_of_series, put_aside
from benchmarks.accuracy.tables import MeasuredTable, read_put_aside_tables, read_tables
from benchmarks.studies.nccl_authors_left_out import author_of
from planner.beliefs import PRIORS, Z_80, read_shipped
from planner.gpus import GENERATIONS
from planner.runs import columns_of_runs, read_table, why_untimed
from ringlab.shared.models import find_training
from scenarios.loader import read_spread_training
from simcomm.nccl.descriptions import System, describe_system, read_systems
from simcomm.nccl.predict import predict_seconds

LARGE = 8e6  # bytes from which the bandwidth determines the time
SPEEDUPS = {  # of each file: samples/s of the published run divided by those of one device, by changed key and devices
    "v100-pcie.toml": {("", 4): 650.92 / 202.78, ("", 16): 2379.56 / 202.78},
    "a40.toml": {("", 8): 8 * 1.4 / 6.4, ("training.parallelism.gradient_bytes=2", 8): 8 * 1.4 / 3.6},
    "h100-pcie.toml": {("", 2): 2 * 1.27 / 2.07},
    "gtx1080ti.toml": {("", 2): 1.6, ("", 4): 3.5},
}


class LinkError(NamedTuple):
    """The error of a system that is described by its parts: log(measured / predicted) of its largest all_reduce."""

    author: str
    system: str
    error: float


class StepError(NamedTuple):
    """The error of a training's step, and the standard deviation that the prediction has without ``unseen_several``."""

    training: str
    error: float  # log(measured / predicted)
    deviation: float


def describe_parts(system: System) -> System:
    """Return the system without settings, topology and measured facts: only hosts, GPUs and NICs are stated."""
    network = {"net": system.net, "nic": system.nic} if system.nodes > 1 else {}
    keys = {"nodes": system.nodes, "gpus": system.gpus, "gpu": system.gpu.name, **network}
    return describe_system(system.slug, keys)


def find_link_errors(tables: Mapping[str, MeasuredTable]) -> Iterator[LinkError]:
    """Yield the error of each published system that communicates over PCIe or TCP."""
    for system, series in judged_series(read_systems(), tables):
        is_over_pcie = system.link == "pcie" and system.gpu.generation != "cpu"
        if series.collective != "all_reduce" or series.nbytes[-1] < LARGE or not (is_over_pcie or system.net == "tcp"):
            continue
        described = describe_parts(system)
        if described.link == "pcie" or described.net == "tcp":  # not GPUs whose NVLinks are unused
            predicted = predict_seconds(described, series.collective, series.nbytes[-1:])
            yield LinkError(author_of(system), system.slug, log(series.seconds[-1] / predicted[0]))


def find_step_errors() -> Iterator[StepError]:
    """Yield the error of each published point of the trainings."""
    several = read_shipped().deviations["shared"] * PRIORS["unseen_several"].spread
    for name, speedups in SPEEDUPS.items():
        for (change, devices), speedup in speedups.items():
            spread = read_spread_training(OWN_DATA / "described" / name, [change] * bool(change))
            step = find_training(spread, spread.training.batch_size).predict(devices)
            others = sqrt(step.deviations.scaling**2 - several**2)
            yield StepError(name, log(step.efficiency * devices / speedup), others)


def find_gpu_errors() -> dict[str, float]:
    """Return the root mean square error of each source's runs on a GPU generation whose runs were left out of the fit.

    The keys are the source and the generation. An error is the logarithm of predicted by measured seconds.
    """
    rows = [run for run in read_table()[0] if why_untimed(run) is None]
    fast = [run for run, slow in zip(rows, mark_slow(rows), strict=True) if not slow]
    sources, measured = np.array([run["source"] for run in fast]), np.array([run["step_s"] for run in fast])
    runs, hidden = RunSteps(columns_of_runs(fast), measured, sources), put_aside()
    series = fit_of_series([curve for curve in read_series() if curve.system not in hidden])
    errors = dict[str, float]()
    for number in np.unique(runs.columns.generation):
        mine = runs.columns.generation == number
        left = runs.take(mine)
        logs = left.logs(fit([Fitted.of(runs.take(~mine)), series]))
        for source in np.unique(left.sources):
            squares = np.square(logs[left.sources == source])
            errors[f"{source}, {GENERATIONS[int(number)]}"] = float(np.sqrt(np.mean(squares)))
    return errors


def group_errors(errors: Iterable[LinkError | StepError]) -> dict[str, list[float]]:
    """Return the errors by author, or by training."""
    groups = defaultdict[str, list[float]](list)
    for error in errors:
        groups[error[0]].append(error.error)
    return groups


def link_deviation(errors: Iterable[LinkError]) -> float:
    """Return the root mean square error. Each author has the same weight."""
    return float(np.sqrt(np.mean([np.mean(np.square(group)) for group in group_errors(errors).values()])))


def step_deviation(errors: Iterable[StepError]) -> float:
    """Return the deviation of normally distributed errors with this median absolute value, each training weighing 1."""
    medians = [np.median(np.abs(group)) for group in group_errors(errors).values()]
    return float(np.median(medians) / norm.ppf(0.75))


def judge_left_out() -> Iterator[tuple[StepError, bool]]:
    """Yield each error, and whether it is inside the 80 % interval that follows from the other trainings."""
    errors = [*find_step_errors()]
    for error in errors:
        several = step_deviation(other for other in errors if other.training != error.training)
        yield error, abs(error.error) <= Z_80 * hypot(error.deviation, several)


def main() -> None:
    """Print the errors, the deviations, and the spreads of the priors that give these deviations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", action="store_true", help="also compute the errors of the held-out systems")
    shared, links = read_shipped().deviations["shared"], [*find_link_errors(read_tables(read_systems()))]
    deviation = link_deviation(links)
    for link in [*links, *(find_link_errors(read_put_aside_tables()) if parser.parse_args().open else ())]:
        is_inside = abs(link.error) <= Z_80 * deviation
        print(f"{link.system:40} {link.error:+.2f} {'inside' if is_inside else 'outside'} {link.author}")
    for step, is_inside in judge_left_out():
        print(f"{step.training:40} {step.error:+.2f} {'inside' if is_inside else 'outside'}")
    gpus = find_gpu_errors()
    for name, error in gpus.items():
        print(f"{name:40} {error:+.2f}")
    deviations = {
        "unseen_link": deviation, "unseen_several": step_deviation(find_step_errors()),
        "unseen_gpu": float(np.sqrt(np.mean(np.square([*gpus.values()])))),
    }  # fmt: skip
    for name, value in deviations.items():
        print(f"{name}: deviation {value:.2f}, spread {value / shared:.2f}")


if __name__ == "__main__":
    main()
