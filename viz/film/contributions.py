"""How full each chunk of each rank is while a collective runs, for the panel beside the cluster."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace
from viz.player.buffers import COMPLETE, follow_buffers


@dataclass(frozen=True)
class Contributions:
    """The share, from 0 to 1, of the most contributors that a chunk can have, and what is as promised, over time."""

    times: npt.NDArray[np.float64]  # [changes]
    shares: npt.NDArray[np.float64]  # [changes, ranks, chunks], each from its time on
    complete: npt.NDArray[np.bool_]  # [changes, ranks, chunks]: holds what the collective promises

    def at(self, time: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the shares and what is complete at a time, each of shape [ranks, chunks]."""
        found = np.searchsorted(self.times, time, side="right") - 1
        return np.asarray(self.shares[found]), np.asarray(self.complete[found])


def find_contributions(trace: Trace) -> Contributions | None:
    """Return how full the chunks are over time; None where the program is not known or the messages are not its own."""
    buffers = follow_buffers(trace) if len(trace.messages) else None
    if buffers is None:
        return None
    values = np.repeat(buffers.start[None], len(buffers.message) + 1, axis=0)
    for change, (cell, value) in enumerate(zip(buffers.cell, buffers.value, strict=True), start=1):
        values[change:, cell] = value
    count = np.bitwise_count if buffers.is_exact else np.asarray
    held = count(values & (COMPLETE - 1))
    shape = (-1, trace.world_size, buffers.chunks)
    most = max(int(count(buffers.wanted).max()), 1)
    times = np.concatenate([[0.0], trace.messages.end[buffers.message]])
    return Contributions(times, np.minimum(held / most, 1.0).reshape(shape), (values & COMPLETE > 0).reshape(shape))
