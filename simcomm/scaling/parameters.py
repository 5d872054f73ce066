"""The parameters of the model of a training step, from ``parameters.toml``."""

from functools import cache
from pathlib import Path

from simcomm.nccl.parameters import Parameters, read_definitions

FILE = Path(__file__).parent / "parameters.toml"


@cache
def read_parameters() -> Parameters:
    """Return the values that are shipped.

    >>> 0 < read_parameters()["eff_nvlink"] < 2
    True
    """
    return Parameters({name: found.value for name, found in read_definitions(FILE).items()})
