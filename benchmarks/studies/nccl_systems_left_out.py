"""Predict each system with parameters that were fitted to all other systems."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.accuracy.tables import MeasuredTable
from benchmarks.studies.nccl_fit import fit_parameters, observe_tables
from simcomm.nccl.descriptions import System
from simcomm.nccl.parameters import Parameters

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)


class Folds(NamedTuple):
    """The parameters with each system left out, and the number of refits that no step improved."""

    parameters: dict[str, Parameters]
    stalled: int


def refit_without_each(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable], tick: Tick) -> Folds:
    """Return for each system the parameters of a fit to all others.

    Refits start from the fit to all systems. A refit that no step improves keeps those parameters, which have seen the
    system. These refits are counted.
    """
    observed = observe_tables(systems, tables)
    everything = fit_parameters(observed).parameters
    fits: dict[str, Parameters] = {}
    stalled = 0
    for index, left_out in enumerate(observed):
        fold = fit_parameters([other for other in observed if other is not left_out], everything)
        fits[left_out.system.slug] = fold.parameters
        stalled += fold.is_stalled
        tick(0, index + 1, len(observed), left_out.system.slug)
    return Folds(fits, stalled)
