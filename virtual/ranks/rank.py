"""A virtual rank: its thread, its launched operators, and its job."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock, Thread
from typing import Any, NamedTuple

from virtual.ranks.finding import ProgramFinding
from virtual.ranks.own_state import OwnState
from virtual.ranks.sites import NOWHERE, CallSite


@dataclass(slots=True)
class Launches:
    """Operators that a rank's host has launched and its device executes. Times are in seconds.

    If the host starts at time h and the device is free at time c, the host is done at h + ``host``, and the device at
    max(c + ``device``, h + ``lead``).

    >>> done = Launches()
    >>> done.add(5.0, 2.0); done.add(5.0, 1.0); done
    Launches(host=10.0, device=3.0, lead=11.0)
    """

    host: float = 0.0  # time to launch
    device: float = 0.0  # time to execute
    lead: float = 0.0  # time until the device is done, if it is idle at the start

    def add(self, host: float, device: float) -> None:
        self.host += host
        self.device += device
        self.lead = max(self.lead, self.host) + device

    def follow(self, later: "Launches") -> None:
        self.lead = max(self.lead + later.device, self.host + later.lead)
        self.host += later.host
        self.device += later.device

    def take(self) -> "Launches":
        """Return a copy of the launched operators, and clear this object."""
        launches = Launches(self.host, self.device, self.lead)
        self.host = self.device = self.lead = 0.0
        return launches


REMEMBERED = 6  # calls of a rank to show in findings


class Stopped(BaseException):
    """Raised in a rank's thread to unwind it after its job has ended."""


class State(Enum):
    NEW = "new"  # has not started
    READY = "ready"  # can continue once it has the run token
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


class RankWait(NamedTuple):
    """A wait of a rank: the awaited operation, and the line of the program that waits."""

    what: str  # as text, such as "all_reduce([4] float32, sum)"
    site: CallSite
    of: Any = None  # a ``Posted``, or names of keys
    gives_up: bool = False  # ends the wait, not the job, when no event can happen


class PastCall(NamedTuple):
    what: str
    site: CallSite


@dataclass(eq=False)
class RankJob:
    """Ranks that were started together, by the command or by one spawn of the program. They share groups and stores."""

    number: int  # 0: started by the command
    ranks: list["Rank"] = field(default_factory=list)
    finding: ProgramFinding | None = None  # why it was stopped
    raised_in: "Rank | None" = None  # the rank that received the finding as an exception
    stores: dict[Any, dict[str, bytes]] = field(default_factory=dict)  # by number of the world group, or by address
    groups: dict[Any, Any] = field(default_factory=dict)  # shared by their members, by name and members
    recorder: Any = None  # a ``JobRecorder``; None before the first process group
    only: tuple[int, ...] = ()  # ranks that run on behalf of all others; (): all run
    made_groups: list[tuple[int, ...]] = field(default_factory=list)  # all groups that its first rank created

    @property
    def is_over(self) -> bool:
        return all(rank.state is State.DONE for rank in self.ranks)


@dataclass(eq=False, repr=False)
class Rank:
    """A virtual rank: its thread, its clocks, its posted operations and its waits.

    ``clock`` is the rank's time in seconds since the start of the run. While the rank computes, it is ahead of the
    simulated time. If the rank has a virtual GPU, ``clock`` is the GPU's time, and ``host`` is the time of the program.
    """

    number: int  # in its job; -1: the program that starts ranks
    job: RankJob
    body: Callable[["Rank"], None]
    own: OwnState
    local: int = 0  # number on the machine
    world_size: int = 0  # size of the world group that it has joined
    clock: float = 0.0
    computed: float = 0.0  # seconds of compute and sleep
    waited: float = 0.0  # seconds of waiting for other ranks
    busy_since: float = 0.0
    host: float = 0.0  # time of the program that launches operators
    launches: Launches | None = None  # launched operators that are not recorded yet; None: no device
    state: State = State.NEW
    waiting: RankWait | None = None
    is_ready: Callable[[], bool] | None = None  # the condition that it waits for
    thread: Thread | None = None
    run_token: Lock = field(default_factory=Lock)
    threads: list[Thread] = field(default_factory=list)  # started by the program on the rank
    history: deque[PastCall] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    futures: list[Any] = field(default_factory=list)  # works with pending futures
    unrecorded: list[Any] = field(default_factory=list)  # operations with set futures but unrecorded waits
    unwaited: dict[int, Any] = field(default_factory=dict)  # handles that no wait was called for, by id
    made_groups: list[tuple[tuple[int, ...], CallSite]] = field(default_factory=list)  # ranks, and line of new_group
    backwards: int = 0  # backward passes
    steps: list[int] = field(default_factory=list)  # number of backward passes before each optimizer step
    step_ends: list[float] = field(default_factory=list)  # on its clock, in seconds
    meetings: int = 0  # number of world groups that it has created
    batch: Any = None  # mark of messages in one batch_isend_irecv
    error: BaseException | None = None
    ended_at: CallSite = NOWHERE
    extra: dict[str, Any] = field(default_factory=dict)  # data of other modules, by name

    def __post_init__(self) -> None:
        self.run_token.acquire()

    @property
    def now(self) -> float:
        """The time that the program's clocks show, in seconds."""
        return self.clock if self.launches is None else self.host

    def spend(self, seconds: float) -> None:
        """Advance the clock by the seconds that the rank computes, sleeps or polls."""
        if self.launches is not None:
            self.launch(Launches(seconds, 0.0, seconds))
            return
        self.clock += seconds
        self.computed += seconds

    def launch(self, done: Launches) -> None:
        assert self.launches is not None
        end = max(self.clock + done.device, self.host + done.lead)
        self.computed += end - self.clock
        self.clock = end
        self.host += done.host
        self.launches.follow(done)

    def meet_device(self) -> None:
        """Let the host wait for its device, if the rank has one."""
        if self.launches is not None:
            self.host = self.clock
            if self.job.recorder is not None and self.number >= 0:  # the program that starts ranks is not recorded
                self.job.recorder.meet_device(self)
