"""Read the model's parameters from ``parameters.toml``: each with its value, prior, meaning and source.

Some parameters scale the predicted times of all systems on the hosts of one cluster. Two machines of one author, or two
tables of one machine, usually deviate from the prediction in the same direction, for example because of a slot with
four lanes, an old BIOS, or a congested fabric. The key ``cluster`` of a system description names such hosts. For each
cluster, the fit has six factors: for small, middle and large sizes, on one node and on several nodes. Their prior is 1.
"""

import tomllib
from collections import UserDict
from collections.abc import Mapping, Sequence
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
    """A positive parameter and its prior. ``spread`` is the standard deviation of the prior's logarithm."""

    name: str
    value: float
    prior: float
    spread: float
    unit: str
    meaning: str
    source: str


class Parameters(UserDict[str, float]):
    """The values of parameters by name."""

    def changed(self, values: Mapping[str, float]) -> "Parameters":
        """Return the parameters with some values replaced. Raise InputError for an unknown name."""
        unknown = values.keys() - self.data.keys()
        if unknown:
            raise InputError(f"unknown parameter {min(unknown)!r} of NCCL's model")
        return Parameters({**self.data, **values})


class EachMoved(Parameters):
    """Parameters with columns of values, to compute the slopes of a prediction with respect to several parameters.

    In row i > 0, the i-th parameter in ``names`` is multiplied by 1 + ``share``. All other values are unchanged, as in
    row 0. Predictions are arithmetic on arrays, so one prediction, of shape [1 + names, sizes], gives all slopes.
    ``read`` collects the names of the parameters that it used.

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
        """Return the column of a parameter, and add its name to ``read``."""
        self.read.add(name)
        column = np.full((1 + len(self._rows), 1), super().__getitem__(name), np.float64)
        if name in self._rows:
            column[self._rows[name]] *= 1 + self._share
        return column


def read_definitions(path: Path = FILE) -> dict[str, Parameter]:
    """Return the parameters in a file, by name. Raise InputError if the file cannot be read or is invalid."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: Parameter(name, **table) for name, table in tables.items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise InputError(f"{path}: {error}") from error


@cache
def read_parameters() -> Parameters:
    """Return the fitted parameters of the model that Ringlab ships."""
    return Parameters({name: definition.value for name, definition in read_definitions().items()})


CENTERS = {"small": 2.0**13, "mid": 2.0**20, "large": 2.0**27}  # bytes


def host_parameters(cluster: str, nodes: int) -> list[str]:
    """Return the names of the factors that scale times on a cluster's hosts, for small, middle and large sizes."""
    return [f"hosts.{cluster}.{'one' if nodes == 1 else 'several'}.{name}" for name in CENTERS]


def host_factors(cluster: str | None, nodes: int, sizes: Floats, values: Parameters) -> Floats | float:
    """Return, for each size in bytes, the fitted factor that scales times on a cluster's hosts; 1 for no cluster."""
    if cluster is None:
        return 1.0
    places = np.interp(np.log(sizes), np.log([*CENTERS.values()]), range(len(CENTERS)))
    shares = np.maximum(0.0, 1 - np.abs(places - np.arange(len(CENTERS))[:, None]))
    logs = [
        np.log(values.get(name, 1.0)) * share
        for name, share in zip(host_parameters(cluster, nodes), shares, strict=True)
    ]
    factors: Floats = np.exp(np.sum(logs, axis=0))
    return factors
