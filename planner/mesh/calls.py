"""Collectives of a step: which devices take part, with how many bytes, how often, and what shares the links of a host.

Three things that go on at once can be switched off, each by its word in ``CONTENTION``:

* ``groups``: the groups of a mesh have their collectives at once, and their GPUs are where the mesh puts them;
* ``streams``: collectives on several streams of a device go on at once: what the data axis exchanges beside collectives
  within layers, and HSDP's average beside the gathering;
* ``loading``: batches are copied to the GPUs over the PCIe links. The copy of the next one begins with the step, as
  torch's prefetching loaders issue it, at all GPUs at once.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collectives.training.parallelism import CONTENTION
from simcomm.nccl.descriptions import System
from simcomm.nccl.host_links import FULL, HostLinks, SharedLink, TrafficFlows
from simcomm.nccl.settings import NcclSettings
from simcomm.timeline import DONE, Program, Task, run_sharing, run_tasks

SHARES: dict[str, Callable[[int], float]] = {  # of the buffer that a rank sends
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


class Group(NamedTuple):
    """Devices that communicate: ``size`` of them, each ``stride`` after the one before; others like it do the same."""

    size: int
    stride: int = 1

    def on_host(self, node: int) -> tuple[tuple[int, ...], ...]:
        """Return which of a host's ``node`` devices such groups join, a tuple for each group's part of the host.

        >>> Group(2, 2).on_host(8)
        ((0, 2), (1, 3), (4, 6), (5, 7))
        """
        local = max(1, min(self.size, node // self.stride))
        apart = min(self.stride, max(1, node // local))
        span = apart * local
        return tuple(
            tuple(range(first + offset, first + span, apart))
            for first in range(0, node - span + 1, span)
            for offset in range(apart)
        )


def sent_bytes(collective: str, nbytes: float, group: Group) -> float:
    """Return the bytes that each device sends, by the best algorithms for large buffers.

    >>> sent_bytes("all_reduce", 100.0, Group(4))
    150.0
    """
    return nbytes * SHARES[collective](group.size)


class Call(NamedTuple):
    """A collective that a device takes part in, so many ``times`` a step: bytes of the whole buffer, and its group.

    Of local SGD, whose steps differ, ``times`` are those of the mean step.
    """

    collective: str
    nbytes: float
    group: Group
    times: float = 1

    @property
    def sent(self) -> float:
        """Bytes that the device sends."""
        return self.times * sent_bytes(self.collective, self.nbytes, self.group)


def join_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Return the calls with those that are alike in one.

    >>> join_calls([Call("all_reduce", 8.0, Group(2)), Call("all_reduce", 8.0, Group(2), 3)])
    (Call(collective='all_reduce', nbytes=8.0, group=Group(size=2, stride=1), times=4),)
    """
    found: dict[tuple[str, float, Group], float] = {}
    for one in calls:
        found[one[:3]] = found.get(one[:3], 0) + one.times
    return tuple(Call(*key, times) for key, times in found.items() if key[2].size > 1 and times)


class Traffic(NamedTuple):
    """What a step puts on links at some time: a collective of all groups like one, or without a group loading.

    ``is_within`` tells a collective within layers from that of the data axis.

    >>> str(Traffic("all_reduce", Group(2), is_within=True)), str(LOADING)
    ('all_reduce within layers', 'loading')
    """

    collective: str
    group: Group | None = None
    is_within: bool = False

    def __str__(self) -> str:
        return f"{self.collective} within layers" if self.is_within else self.collective


LOADING = Traffic("loading")


@dataclass
class StepLinks:
    """The links of one of the hosts of a training: all hosts do the same."""

    system: System
    settings: NcclSettings
    contention: frozenset[str] = frozenset(CONTENTION)
    # GB/s that software sends with in a collective; None: what links offer
    reached: Callable[[str, Group], float] | None = field(default=None, repr=False)
    _paces: dict[frozenset[Hashable], Mapping[Hashable, float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.host = HostLinks(self.system, self.settings)

    @property
    def places_groups(self) -> bool:
        """Whether groups of a host's GPUs have the hops of their places, beside each other, over PCIe."""
        return "groups" in self.contention and self.host.host.link in ("pcie", "bridge")

    def flows(self, traffic: Traffic) -> TrafficFlows:
        """Return the flows of a host."""
        group = traffic.group
        if group is None:
            return self.host.loading(str(traffic))
        found = self.host.rings(str(traffic), group.on_host(self.system.gpus), ranks=group.size)
        return found if self.reached is None else found._replace(most=self.reached(traffic.collective, group))

    def paces(self, going: frozenset[Hashable]) -> Mapping[Hashable, float]:
        """Return the pace of each traffic where these go on at once."""
        if going not in self._paces:
            known = sorted((one for one in going if isinstance(one, Traffic)), key=repr)
            self._paces[going] = self._all(known) if "streams" in self.contention else self._beside_loading(known)
        return self._paces[going]

    def _all(self, going: Sequence[Traffic]) -> dict[Hashable, float]:
        found: dict[Hashable, float] = {}
        found.update(zip(going, self.host.paces([self.flows(one) for one in going]), strict=True))
        return found

    def _beside_loading(self, going: Sequence[Traffic]) -> dict[Hashable, float]:
        """Return the paces of collectives that only loading holds back, and of loading beside each by itself."""
        found: dict[Hashable, float] = {}
        found.update((one, 1.0) for one in going)
        if LOADING in going:
            for one in going:
                if one != LOADING:
                    pair = self._all([LOADING, one])
                    found[one], found[LOADING] = pair[one], min(found[LOADING], pair[LOADING])
        return found

    def loading_seconds(self, nbytes: float) -> float:
        """Return what it takes to copy so many bytes to each GPU at once; 0 where that is switched off."""
        return nbytes / (self.host.rate(self.host.loading()) * 1e9) if "loading" in self.contention else 0.0

    def shared_between(self, traffic: Sequence[Traffic]) -> tuple[SharedLink, ...]:
        """Return the links on which these hold each other back, the narrowest first."""
        return tuple(self.host.shared_between([self.flows(one) for one in traffic]))

    def shared_within(self, traffic: Traffic) -> SharedLink | None:
        """Return the link on which messages of one traffic hold each other back, None where none does."""
        return self.host.shared_within(self.flows(traffic)) if "groups" in self.contention else None


class Delay(NamedTuple):
    """What sharing links adds to a step, and the links."""

    seconds: float = 0.0
    links: tuple[SharedLink, ...] = ()


NO_DELAY = Delay()


def delay_of(program: Program, links: StepLinks | None, loading: float) -> Delay:
    """Return what a step takes longer as its traffic shares links, where ``loading`` bytes are copied to each GPU.

    The copies themselves are not waited for: what they hold back is. The links are those of the traffic that went on at
    once for longest.
    """
    if links is None:
        return NO_DELAY
    tasks, copying = program.tasks, links.loading_seconds(loading)
    if copying:
        tasks = [*tasks, Task(str(LOADING), (0, str(LOADING)), copying, (), LOADING)]
    traffic = frozenset(task.traffic for task in tasks if isinstance(task.traffic, Traffic))
    if len(traffic) < 2 or min(links.paces(traffic).values()) > FULL:
        return NO_DELAY
    sharing, apart = run_sharing(tasks, links.paces), run_tasks(tasks)
    ends = [
        max(one.end for one, task in zip(intervals, tasks, strict=True) if task.traffic != LOADING)
        for intervals in (sharing.intervals, apart)
    ]
    seconds = ends[0] - ends[1]
    if seconds <= DONE * ends[1]:
        return NO_DELAY
    return Delay(seconds, links.shared_between(_longest(sharing.together, links)))


def _longest(together: Mapping[frozenset[Hashable], float], links: StepLinks) -> list[Traffic]:
    """Return the traffic that held each other back for longest."""
    held = {going: seconds for going, seconds in together.items() if min(links.paces(going).values()) <= FULL}
    found = max(held, key=lambda going: held[going], default=frozenset())
    return sorted((one for one in found if isinstance(one, Traffic)), key=repr)
