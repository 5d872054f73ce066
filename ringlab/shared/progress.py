"""Progress of what takes a while: what a caller gives, a silent one, and one on standard error for rank 0.

Bars on a terminal, plain lines elsewhere.
"""

import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

from rich.console import Console

from collectives.errors import InputError
from collectives.quoting import make_printable, quote
from collectives.variables import is_first_rank
from ringlab.shared.output import make_console
from simcomm.compiling import reporting_compilation

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)

LATE_S = 2.0  # computing that takes less than this is not told of
PLAIN_EVERY = 4.0  # seconds between plain lines of one task
BARS_A_SECOND = 2  # drawing takes a core from the ranks
WORTH_SAYING_S = 1.0  # of the time that is left
TELLING_SHARE = 0.03  # of what is counted: after so much of it, the time that is left can be said


class Progress(Protocol):
    """Where a command says what it is doing."""

    def task(self, text: str, late_s: float = 0.0) -> AbstractContextManager[Tick]:
        """Return a context for something that takes a while, and the callback that moves it on.

        It is shown when it has taken ``late_s`` seconds.
        """

    def note(self, text: str) -> None:
        """Say something that is worth knowing before the answer."""


class NoProgress:
    """Say nothing."""

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Return a context whose callback ignores what it is given."""
        yield lambda rank, done, total, now: None

    def note(self, text: str) -> None:
        """Ignore the note."""


def check_progress(progress: Progress | None) -> Progress:
    """Return where progress is told, nowhere for None. Raise InputError for what has no ``task`` and ``note``."""
    if progress is None:
        return NoProgress()
    if not hasattr(progress, "task") or not hasattr(progress, "note"):
        raise InputError(f"progress is {quote(progress)}; give ringlab.shared.progress.TerminalProgress() or its like")
    return progress


@contextmanager
def computing(progress: Progress | None, text: str) -> Iterator[Tick]:
    """Return a context for computing that may take long, which is shown only if it does; also compiling is told of.

    >>> with computing(None, "simulating") as tick:
    ...     tick(0, 1, 2, "ring")
    """
    progress = check_progress(progress)
    with progress.task(text, LATE_S) as tick:

        def tell(note: str) -> None:
            progress.note(note)
            tick(0, 0, 0, "compiling")

        with reporting_compilation(tell):
            yield tick


class Interruption:
    """Whether an interrupt has ended a block."""

    came = False


@contextmanager
def keeping(found: Sized) -> Iterator[Interruption]:
    """Have an interrupt end the block and no more, once something is found that is worth keeping."""
    interruption = Interruption()
    try:
        yield interruption
    except KeyboardInterrupt:
        if not found:
            raise
        interruption.came = True


class Stages:
    """Progress of several tasks as one, in per cent, which only grows. Notes are left out.

    ``tasks`` are in order: how the text of each begins, and about how many seconds it takes. One that is left out is
    passed over, and one that is not among them changes the text only.

    >>> told = []
    >>> stages = Stages(lambda rank, *far: told.append(far), [("calibrating", 15), ("training", 2), ("training", 3)])
    >>> for text in ("calibrating this machine", "training with ring"):
    ...     with stages.task(text) as tick:
    ...         tick(0, 1, 2, "half")
    >>> [(done, text) for done, total, text in told if text == "half"]
    [(37, 'half'), (80, 'half')]
    """

    def __init__(self, tick: Tick, tasks: Sequence[tuple[str, float]]) -> None:
        self._tick, self._tasks, self._next, self._done = tick, tasks, 0, 0.0

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Return a context for a task, and the callback that moves the whole on."""
        at = next((at for at in range(self._next, len(self._tasks)) if text.startswith(self._tasks[at][0])), None)
        if at is None:
            yield lambda rank, done, total, now: self._tick(rank, 0, 0, now)
            return
        self._next = at + 1
        before, own, whole = (
            sum(seconds for _, seconds in some) for some in (self._tasks[:at], self._tasks[at : at + 1], self._tasks)
        )

        def move(rank: int, done: int, total: int, now: str) -> None:
            self._done = max(self._done, before + own * min(1.0, done / (total or 1)))
            self._tick(rank, int(100 * self._done / whole), 100, now)

        move(0, 0, 1, text)
        yield move
        move(0, 1, 1, text)

    def note(self, text: str) -> None:
        """Ignore the note."""


class TerminalProgress:
    """Where a command says what it is doing: a ``Progress``."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True, quiet=not is_first_rank())

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Show something that takes a while until the block ends, if it takes ``late_s``; the callback moves it on.

        A thread shows it, so that there is a sign of life also while the block is in machine code.
        """
        shown = (_Bar if self.console.is_terminal else _Lines)(self.console, text)
        ended = Event()
        thread = Thread(target=_show, args=(shown, ended, late_s), daemon=True)
        if late_s == 0:
            shown.begin()
        thread.start()
        is_done = False
        try:
            yield shown.tick
            is_done = True
        finally:
            ended.set()
            thread.join()
            shown.end(is_done)

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=True)


class _Shown:
    """What is shown of a task: how far it is."""

    def __init__(self, console: Console, text: str) -> None:
        self.console, self.text, self.begun = console, text, time.monotonic()
        self.done, self.total, self.now, self.moved, self.is_shown = 0, 0, "", self.begun, False
        self.is_aside = False  # something that is not counted goes on
        self.counted: tuple[float, int] | None = None  # since when, and from what on; None: since it began

    def tick(self, rank: int, done: int, total: int, now: str) -> None:
        """Note how far the task is.

        Without ``done`` and ``total`` only what is done now changes. Another total is of something else.
        """
        if self.total and not (done or total):
            self.now, self.is_aside = now, True
            return
        is_same = not self.total or (total == self.total and done >= self.done)
        if self.now and (self.is_aside or not (self.total and is_same)):
            self.counted = (time.monotonic(), done)
        self.is_aside = False
        self.done, self.total, self.now, self.moved = done, total, now, time.monotonic()

    def begin(self) -> None:
        """Show that there is a task."""
        self.is_shown = True

    def look(self) -> None:
        """Show how far the task is."""

    def end(self, is_done: bool) -> None:
        """Show that the task is done, if it was shown at all."""

    def left(self) -> str:
        """Return how long the rest takes if it goes on as until the last news; empty where that is past."""
        since, before = self.counted or (self.begun, 0)
        is_telling = before + TELLING_SHARE * (self.total - before) <= self.done <= self.total and before < self.done
        rest = (self.total - self.done) / (self.done - before) if is_telling else 0.0
        left = (self.moved - since) * rest - (time.monotonic() - self.moved)
        return f"about {format_rest(left)} left" if left > WORTH_SAYING_S else ""


def format_rest(seconds: float) -> str:
    """Return how long something still takes, as exactly as it can be known.

    >>> format_rest(90), format_rest(1500), format_rest(33000)
    ('90 s', '25 min', '9 h 10 min')
    """
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class _Lines(_Shown):
    """Plain lines, one in a while."""

    every_s = PLAIN_EVERY

    def begin(self) -> None:
        super().begin()
        self.console.print(f"{make_printable(self.text)} ...", soft_wrap=True)

    def look(self) -> None:
        counted = f"{self.done:,}/{self.total:,} {self.now}".rstrip() if self.total else self.now
        elapsed = f"{time.monotonic() - self.begun:.0f} s"
        self.console.print(f"  {', '.join(filter(None, (counted, elapsed, self.left())))}", soft_wrap=True)

    def end(self, is_done: bool) -> None:
        if self.is_shown and is_done:
            self.console.print(f"  done in {time.monotonic() - self.begun:.1f} s")


class _Bar(_Shown):
    """A bar, which is gone when the task is over if it was shown late."""

    every_s = 1 / BARS_A_SECOND

    def __init__(self, console: Console, text: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # slow, and for terminals only

        super().__init__(console, text)
        words, now_doing = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[now]}"))
        columns = (words, BarColumn(bar_width=24), now_doing, TimeElapsedColumn())
        self.bars = Progress(*columns, console=console, auto_refresh=False)
        self.bar = self.bars.add_task(make_printable(text), total=None, now="")

    def begin(self) -> None:
        super().begin()
        self.bars.start()

    def look(self) -> None:
        now = make_printable(", ".join(filter(None, (self.now, self.left()))))
        self.bars.update(self.bar, completed=self.done, total=self.total or None, now=now, refresh=True)

    def end(self, is_done: bool) -> None:
        if self.is_shown:
            self.look()
            self.bars.stop()


def _show(shown: _Lines | _Bar, ended: Event, late_s: float) -> None:
    """Show a task until it has ended, from when it has taken so long."""
    if late_s:
        if ended.wait(late_s):
            return
        shown.begin()
    while not ended.wait(shown.every_s):
        shown.look()


def draw_to(answer: Any, path: Path | None, json_to: str | None) -> Callable[[], None]:
    """Return what draws an answer into a file, where one is asked for, and names the picture once it is there."""

    def draw() -> None:
        if path is not None:
            with computing(TerminalProgress(), f"drawing {path}"):
                answer.draw(path)
            make_console(quiet=json_to == "-").print(f"The picture: {path}", soft_wrap=True)

    return draw
