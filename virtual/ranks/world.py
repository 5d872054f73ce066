"""The virtual ranks of a run, which take turns: the rank with the run token runs until it has to wait."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Event, Thread, current_thread, get_ident
from traceback import walk_tb
from typing import TYPE_CHECKING
from weakref import WeakSet

from collectives.errors import InputError
from virtual.ranks.finding import ProgramFinding, format_ranks
from virtual.ranks.neutral import Neutral
from virtual.ranks.own_state import Belongings
from virtual.ranks.rank import Rank, RankJob, RankWait, State, Stopped
from virtual.ranks.sites import NOWHERE, CallSite, find_site, is_users
from virtual.ranks.timing import CallTiming
from virtual.ranks.watching import Watchers

if TYPE_CHECKING:
    from virtual.diagnosis.hangs import ProgramDiagnoser

start_thread = Thread.start  # Python's own; replaced during a run
STACK_BYTES = 16 << 20  # per rank thread: autograd and dynamo recurse deeply
NO_POOL = (
    "torch.distributed in a process started by multiprocessing.Pool, ProcessPoolExecutor or another library cannot run "
    "on virtual ranks: start ranks with torch.multiprocessing.spawn or multiprocessing.Process, or run one process "
    "with ringlab virtual --ranks N SCRIPT"
)
NO_THREADS = (
    "a thread communicates, which cannot run on virtual ranks: call torch.distributed in the main thread of each rank"
)
NO_RANK = "torch.distributed is called by a thread that does not belong to a rank"


class Computing:
    """Determines the compute time of ranks. This base class sets it to zero."""

    def charge(self, rank: Rank) -> None:
        """Advance the rank's clock by its compute time since the last ``charge`` or ``forget``."""

    def forget(self, rank: Rank) -> None:
        """Exclude the time since the last ``charge`` or ``forget``, because Ringlab itself used this time."""

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return a context manager in which a rank's operations are counted. This base class counts nothing."""
        return nullcontext()


class VirtualWorld:
    """All ranks of a run. Only the rank that holds the run token runs; the threads of all other ranks are blocked.

    When the rank has to wait, its thread runs events until some rank can continue, and passes the token to that rank.
    This prevents data races, and ranks run in the order of virtual time.
    """

    def __init__(
        self, calendar: CallTiming, diagnoser: "ProgramDiagnoser", computing: Computing, belongings: Belongings
    ) -> None:
        self.calendar, self.diagnoser, self.computing, self.belongings = calendar, diagnoser, computing, belongings
        self.jobs: list[RankJob] = []
        self.findings: list[ProgramFinding] = []
        self.stores: list[object] = []  # kept, because torch's PrefixStore holds only their C++ half
        self.watch = Watchers()
        self.progress = 0  # number of events that ranks may wait for
        self.by_thread: dict[int, Rank] = {}
        self._ready: deque[Rank] = deque()
        self._is_over = Event()
        self._refusal = ""  # why the program cannot run
        self.is_forked = False  # whether this process is a fork of the run
        _WORLDS.add(self)

    # -- ranks

    @property
    def ranks(self) -> list[Rank]:
        return [rank for job in self.jobs for rank in job.ranks]

    def me(self) -> Rank | None:
        """Return this thread's rank, or None if the thread does not belong to a rank."""
        return self.by_thread.get(get_ident())

    def caller(self) -> Rank:
        """Return this thread's rank. Raise RuntimeError in a thread that does not belong to a rank."""
        rank = self.me()
        if rank is None:
            raise RuntimeError(NO_POOL if self.is_forked else NO_RANK)
        return rank

    def leave_fork(self) -> None:
        """Detach the thread of a forked process, such as a DataLoader worker, from all ranks."""
        self.is_forked = True
        self.by_thread.clear()

    def new_job(self) -> RankJob:
        self.jobs.append(RankJob(len(self.jobs)))
        return self.jobs[-1]

    def add(self, rank: Rank) -> None:
        rank.clock = rank.host = rank.busy_since = self.calendar.now
        rank.job.ranks.append(rank)
        # not a daemon: threads that the program starts inherit the flag
        rank.thread = Thread(target=self._run_rank, args=(rank,), daemon=False, name=f"rank{rank.number}")
        rank.own.seed(rank.number)
        self._ready.append(rank)

    def run(self) -> None:
        threading.stack_size(STACK_BYTES)
        following = self._next_rank()
        if following is not None:
            self._pass_token(following)
            self._is_over.wait()
        if self._refusal:
            raise InputError(self._refusal)

    def _run_rank(self, rank: Rank) -> None:
        rank.run_token.acquire()
        self.by_thread[get_ident()] = rank
        rank.state = State.RUNNING
        self.belongings.restore(rank.own)
        self.computing.forget(rank)
        try:
            rank.body(rank)
            for thread in rank.threads:
                if not thread.daemon:
                    thread.join()  # as Python does before a process exits
        except Stopped:
            pass
        except BaseException as error:
            rank.state, rank.error, rank.ended_at = State.RUNNING, error, _site_of(error)
            if rank.job.finding is None:
                self.stop(rank.job, getattr(error, "finding", None) or self.diagnoser.exception(rank, error))
        self._end(rank)

    def _end(self, rank: Rank) -> None:
        with suppress(Stopped):
            self.catch_up(rank)
        did = "compute" if rank.waiting is None else rank.waiting.what.partition("(")[0]
        self._span(rank, did, rank.busy_since, rank.clock)
        rank.state, rank.waiting = State.DONE, None
        self.poke(*self.ranks)
        self._yield_token(rank)

    def say_where(self) -> str:
        """Return the running rank's current line as text, to explain a timeout."""
        running = next((rank for rank in self.ranks if rank.state is State.RUNNING), None)
        frame = (
            None if running is None or running.thread is None else sys._current_frames().get(running.thread.ident or 0)
        )
        if running is None or frame is None:
            return ""
        site = find_site(frame)
        return f"{format_ranks([running.number])} is at {site}  {site.text}".rstrip()

    # -- waiting

    def wait_until(self, rank: Rank, is_ready: Callable[[], bool], waiting: RankWait) -> None:
        """Run due events, then block the calling rank until ``is_ready()`` is true. Raise Stopped if its job ends."""
        self.catch_up(rank, waiting)
        if not is_ready():
            begin, rank.waiting, rank.is_ready = rank.clock, waiting, is_ready
            rank.state = State.WAITING
            self._yield_token(rank)
            self._span(rank, waiting.what.partition("(")[0], begin, rank.clock)
            rank.waited += rank.clock - begin
            rank.busy_since, rank.waiting = rank.clock, None
        self.computing.forget(rank)

    def catch_up(self, rank: Rank, waiting: RankWait | None = None) -> None:
        """Run all events that are due before the calling rank's clock. Raise Stopped if the rank's job has ended."""
        self.refuse_threads(rank)
        self.computing.charge(rank)
        self.check(rank)
        calendar = self.calendar
        if calendar.has_time and calendar.now < rank.clock:
            self._span(rank, "compute", rank.busy_since, rank.clock)
            rank.busy_since = rank.clock
            rank.state, rank.waiting = State.WAITING, waiting
            calendar.at(rank.clock, lambda: self._wake(rank))
            self._yield_token(rank)
            rank.waiting = None

    def refuse_threads(self, rank: Rank) -> None:
        """Reject the program if the caller is not the rank's main thread, which may wait for the caller forever."""
        if current_thread() is not rank.thread:
            self._refusal = f"{find_site()}: {NO_THREADS}"
            self._is_over.set()
            raise Stopped

    def give_way(self, rank: Rank) -> None:
        """Let other ranks run before a polling rank continues. This is for runs without simulated time."""
        self.check(rank)
        self._make_ready(rank)
        self._yield_token(rank)

    def poke(self, *ranks: Rank) -> None:
        """Wake each of the ranks if the condition that it waits for has become true."""
        for rank in ranks:
            if rank.state is State.WAITING and rank.is_ready is not None and rank.is_ready():
                self._make_ready(rank)

    def check(self, rank: Rank) -> None:
        if rank.job.finding is not None and rank.state is not State.DONE:
            raise Stopped

    def _span(self, rank: Rank, name: str, begin: float, end: float) -> None:
        if rank.number >= 0:
            self.calendar.span(rank.number, name, begin, end)

    # -- ends

    def stop(self, job: RankJob, finding: ProgramFinding) -> None:
        """End a job by unwinding all its ranks. Later findings of the job are ignored."""
        if job.finding is None:
            job.finding = finding
            if finding not in self.findings:  # otherwise it belongs to a job that this job waited for
                self.findings.append(finding)
            for rank in job.ranks:
                if rank.state is State.WAITING:
                    self._make_ready(rank)

    def _at_a_standstill(self) -> bool:
        """End a wait that has a timeout, or else report a hanging job. Return False if there is nothing to end."""
        for rank in self.ranks:
            if rank.state is State.WAITING and rank.waiting is not None and rank.waiting.gives_up:
                self._make_ready(rank)
                return True
        for job in reversed(self.jobs):
            if not job.is_over and job.finding is None:
                self.stop(job, self.diagnoser.hang(job))
                return True
        return False

    # -- the run token

    def _wake(self, rank: Rank) -> None:
        if rank.state is State.WAITING and rank.is_ready is None:
            self._make_ready(rank)

    def _make_ready(self, rank: Rank) -> None:
        rank.is_ready, rank.state = None, State.READY
        rank.clock = max(rank.clock, self.calendar.now)
        self._ready.append(rank)

    def _next_rank(self) -> Rank | None:
        ready = self._ready
        while not ready:
            with Neutral():
                while not ready and self.calendar.step():
                    pass
            if not ready and not self._at_a_standstill():
                return None
        return ready.popleft()

    def _yield_token(self, me: Rank) -> None:
        following = self._next_rank()
        if following is not me:
            is_done = me.state is State.DONE
            if is_done and following is None:
                self._is_over.set()
                return
            assert following is not None, "a rank that waits is never the last"
            self.belongings.save(me.own)
            self._pass_token(following)
            if is_done:
                return
            me.run_token.acquire()
            self.belongings.restore(me.own)
        me.state = State.RUNNING
        self.check(me)

    def _pass_token(self, rank: Rank) -> None:
        if rank.thread is not None and rank.thread.ident is None:  # not started
            start_thread(rank.thread)
        rank.run_token.release()


def _site_of(error: BaseException) -> CallSite:
    places = [CallSite(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return next((place for place in reversed(places) if is_users(place.file)), NOWHERE)


_WORLDS = WeakSet[VirtualWorld]()


def _leave_forks() -> None:
    for world in _WORLDS:
        world.leave_fork()


os.register_at_fork(after_in_child=_leave_forks)
