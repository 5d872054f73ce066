"""Algorithm and protocol where a table states them, beside what the model says that NCCL takes.

A choice that the run forced (``algo`` or ``proto`` of the description) says nothing about the tuner: the model is told
it, as NCCL was.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collectives.units import count
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.tables import MeasuredRow, MeasuredTable
from simcomm.nccl.predict import predict_collective

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


def find_stated_choices(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[StatedChoice]:
    """Return the rows of these tables that state one of NCCL's algorithms.

    >>> from simcomm.nccl.descriptions import read_systems
    >>> from simcomm.nccl.measured.tables import read_tables
    >>> systems = read_systems()
    >>> found = find_stated_choices(systems, read_tables(["h100_2x4_ring_kolyoz"]))
    >>> len(found), all(one.is_forced and one.is_right for one in found)
    (5, True)
    """
    pairs = [(systems[slug], row) for slug, table in tables.items() for row in table.rows if not systems[slug].skip]
    return list(_compare(pairs))


def _compare(pairs: list[tuple[System, MeasuredRow]]) -> Iterator[StatedChoice]:
    for system, row in pairs:
        algorithm = ALGORITHMS.get(row.algorithm)
        if algorithm is not None and row.nbytes:
            found = predict_collective(system, row.collective, row.nbytes)
            is_forced = system.algo is not None or system.proto is not None
            stated, taken = (algorithm, row.protocol.lower()), (found.algorithm, found.protocol)
            yield StatedChoice(system.slug, row.nbytes, stated, taken, is_forced)


def describe_choices(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable]) -> list[str]:
    """Return in sentences how often the model takes what these tables state; none where they state nothing.

    Only what the run did not force can judge the tuner, and only where the description is no guess.

    >>> from simcomm.nccl.descriptions import read_systems
    >>> from simcomm.nccl.measured.tables import read_tables
    >>> print(*describe_choices(read_systems(), read_tables(["h100_2x4_ring_kolyoz"])))
    NCCL's choice is stated in 5 rows: 5 forced by the run, of which the model takes 5; none not forced.
    """
    found = find_stated_choices(systems, tables)
    if not found:
        return []
    forced, own = ([one for one in found if one.is_forced is is_forced] for is_forced in (True, False))
    text = (
        f"NCCL's choice is stated in {count(len(found), 'row')}: {len(forced)} forced by the run, of which the model "
    )
    text += f"takes {sum(one.is_right for one in forced)}; {len(own) or 'none'} not forced"
    if own:
        where = ", ".join(
            slug + (f" ({', '.join(systems[slug].guessed)} guessed)" if systems[slug].guessed else "")
            for slug in dict.fromkeys(one.slug for one in own)
        )
        text += f", of which it takes {sum(one.is_right for one in own)}: {where}"
    return [f"{text}."]
