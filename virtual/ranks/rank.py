"""A virtual rank: its thread, the operators that it has launched, its job, and the interface that reports failures."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock, RLock, Thread
from typing import Any, NamedTuple

from virtual.ranks.finding import ProgramFinding
from virtual.ranks.own_state import OwnState
from virtual.ranks.sites import NOWHERE, CallSite, find_site


class ThreadLock:
    """A lock that a thread holds while it communicates: a rank's own thread always, but while it lends it to others."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0  # how often it is entered by who holds it
        self.threads: list[Thread] = []  # that the program has started on the rank
        self.refused: CallSite | None = None  # where one of them waits for the rank to lend it

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.refused = find_site()
            self._lock.acquire()
            self.refused = None
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        self._lock.release()

    @contextmanager
    def lend(self) -> Iterator[None]:
        """A context in which the rank's own thread waits for the others, which may communicate meanwhile.

        Within a call, where the runtime waits for its own threads, nothing is lent.
        """
        if self._depth > 1:
            yield
            return
        self._depth -= 1
        held = self._lock._release_save()  # type: ignore[attr-defined]  # as Condition.wait does
        try:
            yield
        finally:
            self._lock._acquire_restore(held)  # type: ignore[attr-defined]
            self._depth += 1

    @property
    def has_others(self) -> bool:
        """Whether threads of the rank go on beside its own."""
        return any(thread.is_alive() for thread in self.threads)

    def join(self) -> None:
        """Wait for the other threads, as Python does at the end of a process."""
        for thread in self.threads:
            if not thread.daemon:
                thread.join()


@dataclass(slots=True)
class Launches:
    """Operators between two places where a rank's host and its device meet, in seconds.

    A device that is free at c, with a host that begins at h, has done them at max(c + ``device``, h + ``lead``); the
    host has launched them at h + ``host``.

    >>> done = Launches()
    >>> done.add(5.0, 2.0); done.add(5.0, 1.0); done
    Launches(host=10.0, device=3.0, lead=11.0)
    """

    host: float = 0.0  # that launching takes
    device: float = 0.0  # that operators take
    lead: float = 0.0  # until all is done, if the device has nothing else to do

    def add(self, host: float, device: float) -> None:
        """Launch one more operator."""
        self.host += host
        self.device += device
        self.lead = max(self.lead, self.host) + device

    def follow(self, later: "Launches") -> None:
        """Launch others behind these."""
        self.lead = max(self.lead + later.device, self.host + later.lead)
        self.host += later.host
        self.device += later.device

    def take(self) -> "Launches":
        """Return what was launched, and begin anew."""
        found = Launches(self.host, self.device, self.lead)
        self.host = self.device = self.lead = 0.0
        return found


REMEMBERED = 6  # calls of a rank that are kept for messages


class Stopped(BaseException):
    """The job has ended: every thread of it unwinds."""


class State(Enum):
    """What a rank is doing."""

    NEW = "new"  # has not begun
    READY = "ready"  # can go on as soon as it gets the baton
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


class RankWait(NamedTuple):
    """What a rank waits for, as diagnosis reads it."""

    what: str  # in words: "all_reduce([4] float32, sum)", "store.get(x)"
    site: CallSite
    of: Any = None  # the ``PostedCall``, ``PostedHalf`` or names of keys that it waits for
    gives_up: bool = False  # when nothing can happen any more, in place of the whole job


class PastCall(NamedTuple):
    """A call that a rank has made before."""

    what: str
    site: CallSite
    time: float  # seconds of the rank's clock


@dataclass(eq=False)
class RankJob:
    """Ranks that were started together: those of the command, or of one spawn of the program.

    Groups and stores belong to a job, so that what ranks of another job make does not meet them.
    """

    number: int  # 0: of the command itself
    ranks: list["Rank"] = field(default_factory=list)
    finding: ProgramFinding | None = None  # why it was stopped
    raised_in: "Rank | None" = None  # who has been told of that by an exception
    stores: dict[Any, dict[str, bytes]] = field(default_factory=dict)  # by number of a group of the world, or place
    groups: dict[Any, Any] = field(default_factory=dict)  # what members share, by name and members
    logs: list[Any] = field(default_factory=list)
    only: tuple[int, ...] = ()  # ranks that run, where others are taken to do what these do; () where all run
    made_groups: list[tuple[int, ...]] = field(default_factory=list)  # all groups that its first rank has made

    @property
    def is_over(self) -> bool:
        """Whether all of its ranks have ended."""
        return all(rank.state is State.DONE for rank in self.ranks)


@dataclass(eq=False)
class Rank:
    """One virtual rank: its thread, its clock, and what it has posted and waits for.

    ``clock`` is its own time in seconds of the run; it is ahead of the calendar's while the rank computes. Of a rank
    whose host launches what a device computes it is the device's, and ``host`` is where its program is.
    """

    number: int  # in its job; -1: the program that starts ranks, which is none
    job: RankJob
    body: Callable[["Rank"], None]
    own: OwnState
    local: int = 0  # its number on its machine
    world_size: int = 0  # of the group of the world that it has made or joins
    clock: float = 0.0
    computed: float = 0.0  # seconds in which it computed or slept
    waited: float = 0.0  # seconds in which it waited for others
    busy_since: float = 0.0
    host: float = 0.0  # when its program goes on, which launches what its device does
    launches: Launches | None = None  # on the device since they were recorded; None: nothing is launched
    state: State = State.NEW
    waiting: RankWait | None = None
    is_ready: Callable[[], bool] | None = None  # whether what it waits for is there
    thread: Thread | None = None
    baton: Lock = field(default_factory=Lock)
    thread_lock: ThreadLock = field(default_factory=ThreadLock)
    history: deque[PastCall] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    futures: list[Any] = field(default_factory=list)  # works whose futures are not set yet
    unrecorded: list[Any] = field(
        default_factory=list
    )  # what was posted whose futures are set: it is yet to be waited for
    unwaited: dict[int, Any] = field(default_factory=dict)  # works that nobody has waited for, by id
    stores: list[Any] = field(default_factory=list)  # that c10d wraps in C++, which keeps no Python object alive
    made_groups: list[tuple[tuple[int, ...], CallSite]] = field(default_factory=list)  # ranks as given, and where
    backwards: int = 0  # backward passes
    steps: list[int] = field(default_factory=list)  # after which backward pass its optimizers stepped
    meetings: int = 0  # how many groups of the world it has made
    batch: Any = None  # of messages that are posted together, while they are
    error: BaseException | None = None
    ended_at: CallSite = NOWHERE
    extra: dict[str, Any] = field(default_factory=dict)  # what patches keep of it, by name

    def __post_init__(self) -> None:
        self.baton.acquire()

    def __repr__(self) -> str:
        return f"<Rank {self.number} of job {self.job.number}: {self.state.value}>"

    @property
    def now(self) -> float:
        """What the program's clocks say, seconds."""
        return self.clock if self.launches is None else self.host

    def spend(self, seconds: float) -> None:
        """Compute, sleep or poll for a while."""
        if self.launches is not None:
            self.launch(Launches(seconds, 0.0, seconds))
            return
        self.clock += seconds
        self.computed += seconds

    def launch(self, done: Launches) -> None:
        """Launch operators on the device."""
        assert self.launches is not None
        end = max(self.clock + done.device, self.host + done.lead)
        self.computed += end - self.clock
        self.clock = end
        self.host += done.host
        self.launches.follow(done)

    def meet_device(self) -> None:
        """Have the host wait for its device, where there is one."""
        if self.launches is not None:
            self.host = self.clock
            for log in self.job.logs if self.number >= 0 else ():  # else it starts ranks, and is none
                log.meet_device(self)
