"""By which algorithms the collectives of a user's program are carried out, where it says only what it wants."""

from collections.abc import Mapping
from functools import lru_cache

from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError, Undefined
from collectives.request import check_length
from simcomm.schedules import compact_schedule

USUAL = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "broadcast": "binomial",
    "reduce": "binomial",
    "all_to_all": "pairwise",
    "gather": "naive",
    "scatter": "naive",
    "barrier": "dissemination",
}


class ProgramAlgorithms:
    """The algorithm of each collective: the one named, else the usual one.

    Raises InputError for a name that is none, or of another collective.

    >>> algorithms = ProgramAlgorithms({"all_gather": "recursive_doubling"})
    >>> [algorithms.find("all_gather", ranks, elements=64).full_name for ranks in (8, 6)]
    ['all_gather/recursive_doubling', 'all_gather/ring']
    """

    def __init__(self, named: Mapping[str, str] | None = None) -> None:
        self.named: dict[str, Algorithm] = {}
        for collective, name in (named or {}).items():
            if collective not in USUAL:
                raise InputError(f"{collective} is no collective; there are {', '.join(USUAL)}")
            found = find_algorithm(name, collective)
            if found.spec.name != collective:
                raise InputError(f"{name} is no algorithm of {collective}, but of {found.spec.name}")
            self.named[collective] = found
        self._found: dict[tuple[str, int, int], Algorithm] = {}

    def find(self, collective: str, ranks: int, elements: int) -> Algorithm:
        """Return the algorithm for so many ranks and elements; the usual one where the named one does not exist."""
        key = (collective, ranks, elements)
        if key not in self._found:
            asked = self.named.get(collective)
            exists = asked is not None and _exists(asked, ranks, elements)
            self._found[key] = asked if asked is not None and exists else _usual(collective)
        return self._found[key]


def _exists(algorithm: Algorithm, ranks: int, elements: int) -> bool:
    try:
        check_length(algorithm, elements, ranks)
        compact_schedule(algorithm, ranks)
    except (Undefined, InputError):
        return False
    return True


@lru_cache(maxsize=16)
def _usual(collective: str) -> Algorithm:
    return find_algorithm(USUAL[collective], collective)
