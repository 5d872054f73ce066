"""The model's parameters: values with priors, meanings and sources, from ``parameters.toml``.

Some parameters are factors on the time of the hosts of one cluster, learned from its other systems. Two machines of
one author, or two tables of one machine, mostly miss a prediction in the same direction: a slot with four lanes, an
old BIOS, a crowded fabric. A description names such hosts with ``cluster``. For each, the fit has a factor for small,
middle and large sizes, for one node and for several. Its prior is 1.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.errors import InputError

Floats = NDArray[np.float64]
FILE = Path(__file__).parent / "parameters.toml"


@dataclass(frozen=True)
class Parameter:
    """A positive number, its prior, and the prior's spread: the standard deviation of its logarithm."""

    name: str
    value: float
    prior: float
    spread: float
    unit: str
    meaning: str
    source: str


class Parameters(Mapping[str, float]):
    """Values by name."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self._values)

    def changed(self, values: Mapping[str, float]) -> "Parameters":
        """Return the parameters with some values replaced. Raise InputError for an unknown name."""
        unknown = values.keys() - self._values.keys()
        if unknown:
            raise InputError(f"unknown parameter {min(unknown)!r}")
        return Parameters({**self._values, **values})


class EachMoved(Parameters):
    """Values as columns: unchanged in the first row, and in a row for each of ``names`` with that one moved.

    Predictions are arithmetic over arrays, so one prediction with these, [1 + names, sizes], has the slopes by all of
    them. ``read`` has the names that were read, on which a prediction depends.

    >>> moved = EachMoved({"a": 1.0, "b": 2}, ["b"], 0.5)
    >>> moved["b"].ravel().tolist(), moved["a"].ravel().tolist(), moved.read == {"a", "b"}
    ([2.0, 3.0], [1.0, 1.0], True)
    """

    def __init__(self, values: Mapping[str, float], names: Sequence[str], share: float) -> None:
        super().__init__(values)
        self.read: set[str] = set()
        self._rows = {name: 1 + row for row, name in enumerate(names)}
        self._share = share

    def __getitem__(self, name: str) -> Any:
        """Return the column of a parameter, and record the read."""
        self.read.add(name)
        column = np.full((1 + len(self._rows), 1), super().__getitem__(name), np.float64)
        if name in self._rows:
            column[self._rows[name]] *= 1 + self._share
        return column


def read_definitions(path: Path = FILE) -> dict[str, Parameter]:
    """Return the parameters of a file by name. Raise InputError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: Parameter(name, **table) for name, table in tables.items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise InputError(f"{path}: {error}") from error


@cache
def read_parameters() -> Parameters:
    """Return the fitted values that Ringlab ships."""
    return Parameters({name: definition.value for name, definition in read_definitions().items()})


CENTRES = {"small": 2.0**13, "mid": 2.0**20, "large": 2.0**27}  # bytes


def host_parameters(cluster: str, nodes: int) -> list[str]:
    """Return the names of a cluster's factors, for small, middle and large sizes."""
    return [f"hosts.{cluster}.{'one' if nodes == 1 else 'several'}.{name}" for name in CENTRES]


def host_factors(cluster: str | None, nodes: int, sizes: Floats, values: Parameters) -> Floats | float:
    """Return the factors on the time of a cluster's hosts at sizes in bytes; 1 for an unknown cluster."""
    if cluster is None:
        return 1.0
    places = np.interp(np.log(sizes), np.log([*CENTRES.values()]), range(len(CENTRES)))
    shares = np.maximum(0.0, 1 - np.abs(places - np.arange(len(CENTRES))[:, None]))
    logs = [
        np.log(values.get(name, 1.0)) * share
        for name, share in zip(host_parameters(cluster, nodes), shares, strict=True)
    ]
    factors: Floats = np.exp(np.sum(logs, axis=0))
    return factors
