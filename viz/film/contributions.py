"""Whose data each chunk of each rank holds, read off an all-reduce's messages where that is certain."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace

LARGEST_ITEM = 8  # bytes; chunks of one buffer differ by at most one element


@dataclass(frozen=True)
class Contributions:
    """Share of the ranks, from 0 to 1, whose data is summed into each chunk of each rank, over time."""

    chunks: list[int]
    times: npt.NDArray[np.float64]  # [changes]
    shares: npt.NDArray[np.float64]  # [changes, ranks, chunks], each from its time on

    def at(self, time: float) -> npt.NDArray[np.float64]:
        """Shares at a time, shape [ranks, chunks]."""
        return np.asarray(self.shares[np.searchsorted(self.times, time, side="right") - 1])


def contributions(trace: Trace) -> Contributions | None:
    """Those of an all-reduce whose messages account for the whole buffer and leave every sum complete; else None.

    A trace does not say whether a receive reduces or overwrites. It is a sum if both parts are disjoint and an
    overwriting if what comes includes what is there; anything else, or an end that is not complete, is no certainty.
    """
    chunks = sorted({message.chunk for message in trace.messages})
    if not trace.title.startswith("all_reduce/") or not _whole_buffer(trace, chunks):
        return None
    held = [{chunk: frozenset({rank}) for chunk in chunks} for rank in range(trace.world_size)]
    times, states = [0.0], [_shares(held, chunks)]
    carried: dict[int, frozenset[int]] = {}
    for _, is_send, index in _events(trace):
        message = trace.messages[index]
        if is_send:
            carried[index] = held[message.src][message.chunk]
            continue
        merged = _merged(held[message.dst][message.chunk], carried.get(index))
        if merged is None:
            return None
        held[message.dst][message.chunk] = merged
        times.append(max(times[-1], message.end))
        states.append(_shares(held, chunks))
    return Contributions(chunks, np.array(times), np.array(states)) if states[-1].min() == 1 else None


def _whole_buffer(trace: Trace, chunks: list[int]) -> bool:
    """Whether each message is one chunk, always of the same size, and the chunks make up the buffer."""
    sizes = {(message.chunk, message.nbytes) for message in trace.messages}
    total = sum(nbytes for _, nbytes in sizes)
    return 0 < len(sizes) == len(chunks) and abs(total - trace.facts.get("nbytes", total)) < LARGEST_ITEM


def _events(trace: Trace) -> list[tuple[float, bool, int]]:
    """Arrivals and sends by time; at one moment, rounding aside, arrivals come first."""
    grain = trace.elapsed * 1e-9
    arrivals = [(round(message.end / grain) * grain, False, index) for index, message in enumerate(trace.messages)]
    sends = [(round(message.begin / grain) * grain, True, index) for index, message in enumerate(trace.messages)]
    return sorted(arrivals + sends)


def _merged(here: frozenset[int], coming: frozenset[int] | None) -> frozenset[int] | None:
    if coming is None:
        return None
    if coming >= here:
        return coming
    return None if coming & here else here | coming


def _shares(held: list[dict[int, frozenset[int]]], chunks: list[int]) -> npt.NDArray[np.float64]:
    return np.array([[len(of_rank[chunk]) / len(held) for chunk in chunks] for of_rank in held])
