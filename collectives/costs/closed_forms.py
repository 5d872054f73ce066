"""Compute costs in closed form from alpha (s/message), beta (s/byte sent) and gamma (s/byte reduced or copied).

The formulas return seconds. They hold on a symmetric network: each rank has its own full-duplex link to an ideal
switch, and messages that it sends at the same time share that link. Buffers are divided into equal chunks. On such a
network, the formulas equal the simulated times. Only the formulas in ``UPPER_BOUNDS`` are upper bounds instead.

Sources: Chan, Heimlich, Purkayastha, van de Geijn (2007); Thakur, Rabenseifner, Gropp (2005); Patarasuk and Yuan (2009)
for the ring; Sanders, Speck, Träff (2009) for the two trees. The other formulas were derived from the programs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import NamedTuple

from collectives.algorithms.hierarchical import inner_algorithms, torus_shape
from collectives.declaration import Algorithm

ROUNDING = 1e-12  # relative to the elapsed time; a message with less time left has arrived


class StepShares(NamedTuple):
    """The data that a channel sends in one step and the data that it then reduces, both as shares of the buffer."""

    sent: float
    reduced: float


@dataclass
class _Channel:
    steps: list[StepShares]
    done: int = 0
    sends_at: float = 0.0  # time in seconds at which the first byte of its next message leaves
    left: float | None = None  # seconds to send the rest of its message alone; None before it is sent


def seconds_on_shared_link(
    channels: Sequence[list[StepShares]], alpha: float, sending: float, reducing: float
) -> float:
    """Return the time in seconds at which the last of several concurrent channels has finished its steps.

    In each step, a channel waits ``alpha`` seconds, sends, and then reduces. Channels that send at the same time share
    the link equally. ``sending`` and ``reducing`` are the times in seconds to send and to reduce a whole buffer alone.
    """
    now, last = 0.0, 0.0
    working = [_Channel(steps, sends_at=alpha) for steps in channels if steps]
    while working:
        sending_now = [channel for channel in working if channel.left is not None]
        next_start = min((channel.sends_at for channel in working if channel.left is None), default=inf)
        next_end = now + len(sending_now) * min((channel.left or 0.0 for channel in sending_now), default=inf)
        then = min(next_start, next_end)
        for channel in sending_now:
            channel.left = (channel.left or 0.0) - (then - now) / len(sending_now)
        now = then
        for channel in working:
            if channel.left is None and channel.sends_at <= now:
                channel.left = channel.steps[channel.done].sent * sending
            elif channel.left is not None and channel.left <= ROUNDING * now:
                reduced = now + channel.steps[channel.done].reduced * reducing
                channel.done, channel.left, channel.sends_at = channel.done + 1, None, reduced + alpha
                last = max(last, reduced)
        working = [channel for channel in working if channel.done < len(channel.steps)]
    return last


class CostModel(NamedTuple):
    """The parameters of a cost formula: the ranks, the buffer size, and the costs of messages and of local work."""

    p: int
    nbytes: float
    alpha: float  # seconds per message
    beta: float  # seconds per byte sent
    gamma: float  # seconds per byte reduced or copied

    def messages(self, number: float, share: float) -> float:
        """Return the time in seconds of ``number`` consecutive messages of ``share * nbytes`` bytes each."""
        return number * (self.alpha + share * self.nbytes * self.beta)

    def work(self, share: float) -> float:
        """Return the time in seconds to reduce or copy ``share * nbytes`` bytes."""
        return share * self.nbytes * self.gamma

    def for_group(self, p: int, share: float = 1.0) -> "CostModel":
        return self._replace(p=p, nbytes=self.nbytes * share)

    @property
    def doublings(self) -> int:
        """The number of steps that a broadcast by recursive doubling takes: ceil(log2 p)."""
        return (self.p - 1).bit_length()

    @property
    def core(self) -> int:
        """The largest power of two that is at most the number of ranks."""
        return 1 << (self.p.bit_length() - 1)

    @property
    def others(self) -> float:
        """The share of the buffer that belongs to other ranks: (p - 1) / p."""
        return (self.p - 1) / self.p


def chain_broadcast(m: CostModel, slices: int = 8) -> float:
    return m.messages(m.p + slices - 2, 1 / slices) if m.p > 1 else 0.0


def chain_reduce(m: CostModel, slices: int = 8) -> float:
    return chain_broadcast(m, slices) + m.work((m.p + slices - 2) / slices if m.p > 1 else 0)


def spare_ranks(m: CostModel) -> float:
    """Return the seconds in which spare ranks send their data and receive results. It is 0 if p is a power of two."""
    return m.messages(2, 1) + m.work(1) if m.p > m.core else 0.0


def recursive_doubling_all_reduce(m: CostModel) -> float:
    doublings = m.core.bit_length() - 1
    return m.messages(doublings, 1) + m.work(doublings) + spare_ranks(m)


def halving_doubling_all_reduce(m: CostModel) -> float:
    share = (m.core - 1) / m.core
    return m.alpha * 2 * (m.core.bit_length() - 1) + m.nbytes * m.beta * 2 * share + m.work(share) + spare_ranks(m)


def exchanged_shares(m: CostModel) -> list[float]:
    """Return the size of rank 0's message in each step of recursive doubling, as a share of the buffer."""
    spare, counts = m.p - m.core, [1 << bit for bit in range(m.core.bit_length() - 1)]
    return [(count + min(count, spare)) / m.p for count in counts]


def recursive_doubling_all_gather(m: CostModel) -> float:
    spare = m.messages(1, 1 / m.p) + m.messages(1, m.others) if m.p > m.core else 0.0
    return sum(m.messages(1, share) for share in exchanged_shares(m)) + spare


def recursive_halving_reduce_scatter(m: CostModel) -> float:
    spare = m.messages(1, 1) + m.work(1) + m.messages(1, 1 / m.p) if m.p > m.core else 0.0
    return sum(m.messages(1, share) + m.work(share) for share in exchanged_shares(m)) + spare


def bruck_all_to_all(m: CostModel) -> float:
    """Return the time in seconds. A chunk is packed, sent and unpacked once for each set bit of its distance.

    The distance is the number of ranks that the chunk travels. The program also copies the buffer twice to rotate it.
    """
    if m.p == 1:
        return 0.0
    sends_per_part = sum(distance.bit_count() for distance in range(m.p)) / m.p
    return m.alpha * m.doublings + sends_per_part * m.nbytes * m.beta + m.work(2 + 2 * sends_per_part)


def double_tree_broadcast(m: CostModel, slices: int = 8) -> float:
    """Return an upper bound on the time in seconds. Each tree is at most ceil(log2 p) deep.

    A message has ``1 / (2 * slices)`` of the buffer. The messages of both trees can share a link.
    """
    return m.messages(m.doublings + slices - 1, 1 / slices) if m.p > 1 else 0.0


def double_tree_reduce(m: CostModel, slices: int = 8) -> float:
    """Return an upper bound on the time in seconds.

    A rank receives from its children one after the other, and forwards each slice while it receives the next.
    """
    if m.p == 1:
        return 0.0
    most_children = 1 if m.p < 4 else 2
    steps = most_children * (m.doublings + slices - 2) + 1
    return m.messages(steps, 1 / slices) + m.work(steps / (2 * slices))


def double_tree_lower_bound(m: CostModel, collective: str, slices: int) -> float:
    """Return a lower bound in seconds for ``collective`` on two trees.

    Each tree's last slice starts after all other slices and then crosses the whole tree. The link of the root carries
    the whole buffer. With four ranks or more, a rank with two children receives from them one after the other.
    """
    hop = m.messages(1, 1 / (2 * slices))
    one_way = max((m.doublings + slices - 1) * hop, m.messages(1, 1) + (m.doublings - 1) * hop)
    if collective != "all_reduce":
        return max(one_way, 2 * slices * hop) if collective == "reduce" and m.p >= 4 else one_way
    there_and_back = one_way + (m.doublings + slices - 1) * hop
    return max(there_and_back, 2 * slices * hop + m.messages(slices, 1 / slices)) if m.p >= 4 else there_and_back


def torus_all_reduce(m: CostModel, columns: int | None = None, rows: int | None = None) -> float:
    """Return the time in seconds. The channels of all dimensions and directions share the link of their rank."""
    shape = torus_shape(m.p, columns, rows)
    orders = [shape[k:] + shape[:k] for k in range(len(shape)) for _ in range(2)]
    seconds = (m.alpha, m.nbytes * m.beta, m.nbytes * m.gamma)
    return seconds_on_shared_link([_torus_channel(order, len(orders)) for order in orders], *seconds)


def _torus_channel(sizes: Sequence[int], channels: int) -> list[StepShares]:
    shares = [1 / (channels * prod(sizes[: place + 1])) for place in range(len(sizes))]
    rings = [[share] * (size - 1) for size, share in zip(sizes, shares, strict=True)]
    forth = [StepShares(share, share) for ring in rings for share in ring]
    return forth + [StepShares(share, 0.0) for share, _ in reversed(forth)]


def hierarchical_all_reduce(
    m: CostModel, gpus: int | None = None, node: str = "ring", rail: str = "ring", gather: str | None = None
) -> float | None:
    """Return the sum of the times of the three inner algorithms in seconds, or None if one of them has no formula."""
    inner = inner_algorithms(m.p, gpus, node, rail, gather)
    shares = 1, 1 / inner[0].world_size, 1
    seconds = [
        closed_form(each.algorithm, m.for_group(each.world_size, share))
        for each, share in zip(inner, shares, strict=True)
    ]
    return None if None in seconds else sum(filter(None, seconds))


Form = Callable[..., float | None]


def one_after_the_other(*names: str) -> Form:
    """Return a formula that adds the times of the named algorithms, for an algorithm that runs them in sequence."""
    return lambda m, **parameters: sum(FORMS[name](m, **parameters) or 0.0 for name in names)


FORMS: dict[str, Form] = {
    "broadcast/naive": lambda m: m.messages(m.p - 1, 1),
    "broadcast/binomial": lambda m: m.messages(m.doublings, 1),
    "broadcast/chain": chain_broadcast,
    "broadcast/double_tree": double_tree_broadcast,
    "reduce/naive": lambda m: m.messages(m.p - 1, 1) + m.work(m.p - 1),
    "reduce/binomial": lambda m: m.messages(m.doublings, 1) + m.work(m.doublings),
    "reduce/chain": chain_reduce,
    "reduce/double_tree": double_tree_reduce,
    "all_reduce/naive": one_after_the_other("reduce/naive", "broadcast/naive"),
    "all_reduce/binomial": one_after_the_other("reduce/binomial", "broadcast/binomial"),
    "all_reduce/chain": one_after_the_other("reduce/chain", "broadcast/chain"),
    "all_reduce/double_tree": one_after_the_other("reduce/double_tree", "broadcast/double_tree"),
    "all_reduce/ring": one_after_the_other("reduce_scatter/ring", "all_gather/ring"),
    "all_reduce/bidirectional_ring": one_after_the_other(
        "reduce_scatter/bidirectional_ring", "all_gather/bidirectional_ring"
    ),
    "all_reduce/direct": one_after_the_other("reduce_scatter/direct", "all_gather/direct"),
    "all_reduce/unchunked_ring": lambda m: m.messages(m.p - 1, 1) + m.work(m.p),
    "all_reduce/recursive_doubling": recursive_doubling_all_reduce,
    "all_reduce/halving_doubling": halving_doubling_all_reduce,
    "all_reduce/hierarchical": hierarchical_all_reduce,
    "all_reduce/torus": torus_all_reduce,
    "scatter/naive": lambda m: m.messages(m.p - 1, 1 / m.p),
    # the size of messages halves in each step; together, they carry all parts but the root's
    "scatter/binomial": lambda m: m.alpha * m.doublings + m.others * m.nbytes * m.beta,
    "gather/naive": one_after_the_other("scatter/naive"),
    "gather/binomial": one_after_the_other("scatter/binomial"),
    "all_gather/naive": one_after_the_other("gather/naive", "broadcast/naive"),
    "all_gather/ring": lambda m: m.messages(m.p - 1, 1 / m.p),
    "all_gather/bidirectional_ring": one_after_the_other("all_gather/ring"),
    # simultaneous messages share the link and wait for one latency
    "all_gather/direct": lambda m: m.messages(1, m.others) if m.p > 1 else 0.0,
    "all_gather/bruck": lambda m: m.alpha * m.doublings + m.others * m.nbytes * m.beta,
    "all_gather/recursive_doubling": recursive_doubling_all_gather,
    "reduce_scatter/naive": one_after_the_other("reduce/naive", "scatter/naive"),
    "reduce_scatter/ring": lambda m: m.messages(m.p - 1, 1 / m.p) + m.work(m.others),
    # the two channels share the link, but reduce their halves at the same time
    "reduce_scatter/bidirectional_ring": lambda m: m.messages(m.p - 1, 1 / m.p) + m.work(m.others / 2),
    "reduce_scatter/direct": lambda m: (m.messages(1, m.others) if m.p > 1 else 0.0) + m.work(m.others),
    "reduce_scatter/recursive_halving": recursive_halving_reduce_scatter,
    "all_to_all/direct": one_after_the_other("all_gather/direct"),
    "all_to_all/pairwise": lambda m: m.messages(m.p - 1 + m.p % 2, 1 / m.p) if m.p > 1 else 0.0,
    "all_to_all/bruck": bruck_all_to_all,
    "barrier/naive": one_after_the_other("reduce/naive", "broadcast/naive"),
    "barrier/binomial": one_after_the_other("reduce/binomial", "broadcast/binomial"),
    "barrier/dissemination": lambda m: m.messages(m.doublings, 1) + m.work(m.doublings),
}
UPPER_BOUNDS = {"broadcast/double_tree", "reduce/double_tree", "all_reduce/double_tree"}


def closed_form(algorithm: Algorithm, model: CostModel) -> float | None:
    """Return the time of a library algorithm in seconds from its formula, or None if it has no formula.

    >>> from collectives import find_algorithm
    >>> network = CostModel(p=4, nbytes=1e6, alpha=1e-6, beta=1e-9, gamma=0.0)
    >>> round(closed_form(find_algorithm("all_reduce/ring"), network), 9)
    0.001506
    """
    form = FORMS.get(f"{algorithm.spec.name}/{algorithm.name}") if algorithm.is_builtin else None
    return None if form is None else form(model, **algorithm.parameters)


def least_seconds(algorithm: Algorithm, model: CostModel) -> float:
    """Return a lower bound in seconds for a double tree with equal chunks. It is 0 for all other algorithms."""
    name = f"{algorithm.spec.name}/{algorithm.name}"
    if not algorithm.is_builtin or name not in UPPER_BOUNDS or model.p == 1:
        return 0.0
    return double_tree_lower_bound(model, name.partition("/")[0], int(algorithm.parameters.get("slices") or 8))
