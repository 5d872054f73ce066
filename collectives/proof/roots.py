"""Group the roots of a collective so that one proof covers each group.

In a group, the programs of all roots are identical if ranks and parts are numbered from the root. Another root of the
group then only renumbers ranks and parts, so the proof for one root holds for all of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.schedule.schedule import OperationBlock, ProgramCall, make_call
from collectives.schedule.symbolic_build import block_of
from collectives.step import Kind
from collectives.symbolic_rank import Diverges, VectorRank

Ints = npt.NDArray[Any]
RUNS_PER_RANK = 4  # runs of a symbolic program
MOST_SPLITS = 16  # runs for only some roots of a position; beyond it, a proof for each root is as fast


def root_classes(algorithm: Algorithm, world_size: int) -> list[list[int]]:
    """Return groups of roots such that a proof for one root of a group holds for all of its roots.

    Each root is alone in its group if a program fails, breaks a rule, or cannot run for many roots at once.
    """
    if not algorithm.spec.rooted:
        return [[0]]
    try:
        programs = _run(make_call(algorithm, world_size))
    except (Diverges, Exception, SystemExit):  # errors of the user's code are reported by the proof
        return [[root] for root in range(world_size)]
    classes: dict[Any, list[int]] = {}
    for root, key in enumerate(programs):
        classes.setdefault(key, []).append(root)
    return list(classes.values())


def _run(call: ProgramCall) -> list[tuple[Any, ...]]:
    """Return each root's program, with ranks and chunks numbered from the root. Raise Diverges after too many runs."""
    p, runs, splits = call.world_size, 0, 0
    programs: list[list[tuple[int, bytes, bytes]]] = [[] for _ in range(p)]
    waiting = [np.divmod(np.arange(p * p, dtype=np.int64), p)]  # positions and roots
    while waiting:
        (positions, roots), runs = waiting.pop(), runs + 1
        if runs > RUNS_PER_RANK * p or splits > MOST_SPLITS:
            raise Diverges
        try:
            blocks = _run_together(call, (positions + roots) % p, roots)
        except Diverges as split:
            if split.values is None:
                raise
            parts = [split.values == value for value in np.unique(split.values)]
            waiting += [(positions[part], roots[part]) for part in parts]
            continue
        splits += bool((np.bincount(positions) % p).any())
        for block in blocks:
            fields = np.stack(_from_root(call, roots, block.kind[:, None], *block.fields), axis=-1)
            same = np.stack([block.channel, block.step, block.kind]).tobytes()
            for column, (position, root) in enumerate(zip(positions.tolist(), roots.tolist(), strict=True)):
                programs[root].append((position, same, fields[:, column].tobytes()))
    return [tuple(sorted(program)) for program in programs]


def _run_together(call: ProgramCall, ranks: Ints, roots: Ints) -> list[OperationBlock]:
    if len(roots) == 1:
        channels = replace(call, root=int(roots[0])).run_alone(int(ranks[0]))
    else:
        channels = replace(call, root=VectorRank(roots)).run(VectorRank(ranks))  # type: ignore[arg-type]
    return [block_of(number, program, ranks) for number, program in enumerate(channels)]


def _from_root(
    call: ProgramCall, root: Any, kind: Ints, peer: Ints, chunk: Ints, count: Ints, into: Ints
) -> tuple[Any, ...]:
    """Return the fields of operations, with peers and chunks numbered from the root.

    Raise Diverges for a peer or chunk that does not exist, because it can exist for another root.
    """
    p, chunks, local = call.world_size, call.chunks, kind >= Kind.COPY
    shift = root * (chunks // p) if call.algorithm.spec.has_parts else 0

    def turned(first: Ints) -> Any:
        tile, within = np.divmod(first, chunks)
        if ((first < 0) | (first + count > call.total) | (within + count > chunks)).any():
            raise Diverges
        return tile * chunks + (within - shift) % chunks

    if (~local & ((peer < 0) | (peer >= p))).any():
        raise Diverges
    written = np.where(kind == Kind.SEND, chunk, into)  # a send writes nothing
    return np.where(local, -1, (peer - root) % p), turned(chunk), count, turned(written)
