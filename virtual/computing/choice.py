"""Which way of timing what ranks compute is meant by a word."""

from contextlib import AbstractContextManager
from typing import Protocol

from virtual.computing.rates import NOMINAL_CORE, find_rates
from virtual.computing.simple import MeasuredComputing, NoComputing
from virtual.ranks.rank import Rank
from virtual.ranks.world import Computing


class CountedComputing(Computing, Protocol):
    """How long computing takes, and what a rank runs in so that it is counted."""

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return the context in which a rank runs."""
        ...


def choose_computing(word: str, scale: float = 1.0, launch_s: float | None = None) -> CountedComputing:
    """Return what ``zero``, ``measured``, ``model`` or the name of a GPU means. Raise InputError for another word.

    ``launch_s`` are the seconds that a host takes to launch an operator on that GPU; None: there is no host beside it.
    """
    if word == "zero":
        return NoComputing()
    if word == "measured":
        return MeasuredComputing(scale)
    from virtual.computing import model  # torch's counter of flops imports Triton, a fifth of torch

    if word == "model":
        return model.ModelledComputing(NOMINAL_CORE)
    return (
        model.ModelledComputing(find_rates(word))
        if launch_s is None
        else model.LaunchedComputing(find_rates(word), launch_s)
    )
