"""Regret: what the option that is predicted to be the cheapest really costs more than the cheapest.

Options are published rates of one job on different GPUs, machines and counts; what a sample costs on each is its GPUs'
price over its rate. With the prices of one day one GPU type comes first in most jobs, whatever its rates are; so
prices are drawn by lot, around the snapshot's lowest of each type, as far apart as offers for one type are. The choice
is among all options of a job, or among those on eight GPUs, where scaling counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcomm.renting.rentals import Rental, read_rentals
from simcomm.scaling.descriptions import Point, Series
from simcomm.scaling.gpu_rates import predict_rate, series_gpu
from simcomm.scaling.one_gpu import YOURS, Alone, guess_rates, published

Floats = npt.NDArray[np.float64]
FEWEST_GPUS = 2  # types of GPU that a job must have been run on
DRAWS, SEED = 200, 1
APART = 0.5  # standard deviation of the logarithm of a price: in the snapshot 0.41 of H100s, 0.71 of L40Ss


class Option(NamedTuple):
    """A published rate of a job; ``alone`` is that of one GPU of the same series."""

    series: Series
    point: Point

    @property
    def alone(self) -> float:
        """Samples a second of one GPU, from the first point of the series."""
        first = self.series.points[0]
        return first.rate / first.gpus


class Summary(NamedTuple):
    """Regrets as shares, over jobs and draws of prices; ``right`` is the share of choices that are the best."""

    jobs: int
    mean: float
    p90: float
    right: float


def gpu_prices(rentals: Iterable[Rental]) -> dict[str, float]:
    """Return the lowest price on demand of a GPU of each type, in dollars an hour, by the names of the series.

    >>> from simcomm.renting.rentals import read_rentals
    >>> gpu_prices(read_rentals())["H100 PCIe"]
    1.9
    """
    found: dict[str, float] = {}
    for one in rentals:
        if one.price is not None:
            name = series_gpu(one.gpu)
            found[name] = min(found.get(name, one.price / one.gpus), one.price / one.gpus)
    return found


def job_options(series: Iterable[Series], prices: Mapping[str, float], gpus: int | None = None) -> list[list[Option]]:
    """Return the options of each job that was run on several types of GPU with a price, by model and precision.

    With ``gpus`` only those on so many.
    """
    found: dict[tuple[str, str], list[Option]] = {}
    for one in series:
        if one.gpu.name in prices and one.points[0].gpus == 1:
            points = [point for point in one.points if gpus in (None, point.gpus)]
            found.setdefault((one.model, one.job.precision.lower()), []).extend(Option(one, each) for each in points)
    return [options for options in found.values() if len({option.series.gpu.name for option in options}) >= FEWEST_GPUS]


class BySheets:
    """Rates of options from data sheets: without any published rate of the option's type of GPU or of its model."""

    def __init__(self) -> None:
        self.rates = dict[tuple[str, str, str], float]()

    def alone(self, option: Option) -> float:
        """Return the rate of one GPU."""
        one = option.series
        asked = one.gpu.name, one.model, one.job.precision
        if asked not in self.rates:
            seen = [each for each in published() if each.gpu.name != one.gpu.name and each.job.model != one.job.model]
            self.rates[asked] = guess_rates(seen, [Alone(one.job, one.gpu, YOURS)])[0].rate
        return self.rates[asked]

    def __call__(self, option: Option) -> float:
        """Return the rate of the option."""
        return scaled_rate(option, self.alone(option))


def scaled_rate(option: Option, alone: float) -> float:
    """Return the rate of an option from that of one GPU, by the model of a step."""
    one, point = option.series, option.point
    found = predict_rate(
        one.job_on(point.gpus), one.node, point.gpus, point.nodes, alone, gpu=one.gpu, paths=one.ps_paths
    )
    return found.rate * one.more_steps(point.gpus)


def draw_prices(prices: Mapping[str, float]) -> dict[str, Floats]:
    """Return DRAWS prices for each type of GPU."""
    lots = np.random.default_rng(SEED).normal(0.0, APART, (len(prices), DRAWS))
    return {name: prices[name] * np.exp(lots[place]) for place, name in enumerate(sorted(prices))}


def summarise(
    jobs: Sequence[Sequence[Option]], prices: Mapping[str, Floats], predict: Callable[[Option], float]
) -> Summary:
    """Return the regret over all jobs and draws of prices, by the rates that ``predict`` gives."""
    found = np.concatenate([_regrets(options, prices, predict) for options in jobs])
    return Summary(len(jobs), float(found.mean()), float(np.quantile(found, 0.9)), float((found < 1e-12).mean()))


def _regrets(options: Sequence[Option], prices: Mapping[str, Floats], predict: Callable[[Option], float]) -> Floats:
    """Return for each draw of prices what the predicted choice costs more than the best, as a share."""
    dollars = np.array([option.point.gpus * prices[option.series.gpu.name] for option in options])
    true = dollars / np.array([option.point.rate for option in options])[:, None]
    predicted = dollars / np.array([predict(option) for option in options])[:, None]
    chosen = predicted.argmin(axis=0)
    found: Floats = true[chosen, np.arange(true.shape[1])] / true.min(axis=0) - 1
    return found


def study(series: Sequence[Series], predicted: Iterable[float]) -> dict[str, dict[str, Summary]]:
    """Return regrets of published jobs, among all options and those on eight GPUs, by what is known of one GPU.

    ``predicted`` are rates of the points behind the first of each series, series after series: ``known`` is by these,
    ``linear`` as if GPUs did not wait for each other, ``data_sheets`` without rates of the type of GPU and the model.
    """
    rates = iter(predicted)
    found = {(one.where, point): next(rates) for one in series for point in one.points[1:]}
    ways: dict[str, Callable[[Option], float]] = {
        "known": lambda option: found.get((option.series.where, option.point), option.point.rate),
        "linear": lambda option: option.alone * option.point.gpus,
        "data_sheets": BySheets(),
    }
    lowest = gpu_prices(read_rentals())
    prices = draw_prices(lowest)
    jobs = {"all": job_options(series, lowest), "eight": job_options(series, lowest, 8)}
    return {
        among: {way: summarise(options, prices, predict) for way, predict in ways.items()}
        for among, options in jobs.items()
    }
