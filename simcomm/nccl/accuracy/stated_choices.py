"""Algorithm and protocol where a table states them, beside what the model says that NCCL takes.

A choice that the run forced (``algo`` or ``proto`` of the description) says nothing about the tuner: the model is told
it, as NCCL was.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simcomm.nccl.descriptions import System
from simcomm.nccl.predict import predict_collective
from simcomm.nccl.tables import Row, Table

ALGORITHMS = {  # as NCCL's logs write them
    "Ring": "ring", "Tree": "tree", "NVLS": "nvls", "NVLSTree": "nvls_tree", "CollNetChain": "collnet_chain",
    "PAT": "pat",
}  # fmt: skip


@dataclass(frozen=True)
class StatedChoice:
    """A row whose table states what NCCL took; protocols are empty where none is stated."""

    slug: str
    nbytes: int
    stated: tuple[str, str]  # algorithm, protocol
    taken: tuple[str, str]
    is_forced: bool

    @property
    def is_right(self) -> bool:
        """Whether the model takes what is stated."""
        return all(not word or word == taken for word, taken in zip(self.stated, self.taken, strict=True))


def find_stated_choices(systems: Mapping[str, System], tables: Mapping[str, Table]) -> list[StatedChoice]:
    """Return the rows of these tables that state one of NCCL's algorithms.

    >>> from simcomm.nccl.descriptions import read_systems
    >>> from simcomm.nccl.tables import read_tables
    >>> systems = read_systems()
    >>> found = find_stated_choices(systems, read_tables(["h100_2x4_ring_kolyoz"]))
    >>> len(found), all(one.is_forced and one.is_right for one in found)
    (5, True)
    """
    pairs = [(systems[slug], row) for slug, table in tables.items() for row in table.rows if not systems[slug].skip]
    return list(_compare(pairs))


def _compare(pairs: list[tuple[System, Row]]) -> Iterator[StatedChoice]:
    for system, row in pairs:
        algorithm = ALGORITHMS.get(row.algorithm)
        if algorithm is not None and row.nbytes:
            found = predict_collective(system, row.collective, row.nbytes)
            is_forced = system.algo is not None or system.proto is not None
            stated, taken = (algorithm, row.protocol.lower()), (found.algorithm, found.protocol)
            yield StatedChoice(system.slug, row.nbytes, stated, taken, is_forced)
