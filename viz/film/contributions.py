"""Which ranks' data each chunk of each rank holds during an all-reduce, where its messages leave no doubt."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace

LARGEST_ITEM = 8  # bytes; chunks of one buffer differ by at most one element


@dataclass(frozen=True)
class Contributions:
    """The share of the ranks, from 0 to 1, whose data is summed into each chunk of each rank, over time."""

    chunks: list[int]
    times: npt.NDArray[np.float64]  # [changes]
    shares: npt.NDArray[np.float64]  # [changes, ranks, chunks], each from its time on

    def at(self, time: float) -> npt.NDArray[np.float64]:
        """Return the shares at a time, shape [ranks, chunks]."""
        return np.asarray(self.shares[np.searchsorted(self.times, time, side="right") - 1])


def find_contributions(trace: Trace) -> Contributions | None:
    """Return who contributed what in an all-reduce; None for another collective or where it is not certain.

    A trace does not say whether a receive reduces or overwrites. It reduces if the received chunk and the chunk there
    have no contributor in common, and overwrites if the received chunk has all contributors of the chunk there. Any
    other receive, messages that are not the whole buffer, or a sum incomplete at the end give None.
    """
    chunks = np.unique(trace.messages.chunk).tolist()
    if not trace.title.startswith("all_reduce/") or not _whole_buffer(trace, chunks):
        return None
    messages = list(trace.messages)
    held = [{chunk: frozenset({rank}) for chunk in chunks} for rank in range(trace.world_size)]
    times, states = [0.0], [_shares(held, chunks)]
    carried: dict[int, frozenset[int]] = {}
    for _, is_send, index in _events(trace):
        message = messages[index]
        if is_send:
            carried[index] = held[message.src][message.chunk]
            continue
        merged = _merge(held[message.dst][message.chunk], carried.get(index))
        if merged is None:
            return None
        held[message.dst][message.chunk] = merged
        times.append(max(times[-1], message.end))
        states.append(_shares(held, chunks))
    return Contributions(chunks, np.array(times), np.array(states)) if states[-1].min() == 1 else None


def _whole_buffer(trace: Trace, chunks: list[int]) -> bool:
    """Return whether each message is one chunk, always of the same size, and the chunks make up the buffer."""
    sizes = {(message.chunk, message.nbytes) for message in trace.messages}
    total = sum(nbytes for _, nbytes in sizes)
    return 0 < len(sizes) == len(chunks) and abs(total - trace.facts.get("nbytes", total)) < LARGEST_ITEM


def _events(trace: Trace) -> list[tuple[float, bool, int]]:
    """Return (time, is a send, index of the message) in order; at one moment, up to rounding, arrivals come first."""
    grain = trace.elapsed * 1e-9
    arrivals = [(round(message.end / grain) * grain, False, index) for index, message in enumerate(trace.messages)]
    sends = [(round(message.begin / grain) * grain, True, index) for index, message in enumerate(trace.messages)]
    return sorted(arrivals + sends)


def _merge(here: frozenset[int], coming: frozenset[int] | None) -> frozenset[int] | None:
    """Return the contributors after a receive; None where it cannot be told whether it reduces or overwrites."""
    if coming is None:
        return None
    if coming >= here:
        return coming
    return None if coming & here else here | coming


def _shares(held: list[dict[int, frozenset[int]]], chunks: list[int]) -> npt.NDArray[np.float64]:
    """Return the share of the ranks that contributed to each chunk, shape [ranks, chunks]."""
    return np.array([[len(of_rank[chunk]) / len(held) for chunk in chunks] for of_rank in held])
