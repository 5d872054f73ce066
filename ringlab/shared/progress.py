"""Reports the progress of long computations on standard error, as bars or plain lines. The default reports nothing."""

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

from rich.console import Console

from collectives.errors import InputError
from collectives.quoting import make_printable, quote
from collectives.variables import is_first_rank
from ringlab.shared.output import make_console
from simcomm.compiling import reporting_compilation

Tick = Callable[[int, int, int, str], None]  # (rank, done, total, text)

LATE_S = 2.0  # shorter computations are not reported
PLAIN_EVERY = 4.0  # seconds between lines, if standard error is not a terminal
BARS_A_SECOND = 2  # updates of a bar; more would take a core from the ranks


class Progress:
    """Base class of a command's progress reports, which reports nothing."""

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Report the block's progress if it takes more than ``late_s`` seconds. Yield a function that updates it."""
        yield lambda rank, done, total, now: None

    def note(self, text: str) -> None:
        """Print a line of text, such as a warning, before the command's result."""


def check_progress(progress: Progress | None) -> Progress:
    """Return ``progress``, or an object that reports nothing if ``progress`` is None.

    Raise InputError if ``progress`` lacks the methods ``task`` and ``note``.
    """
    if progress is None:
        return Progress()
    if not hasattr(progress, "task") or not hasattr(progress, "note"):
        raise InputError(
            f"progress must be ringlab.shared.progress.TerminalProgress() or similar, not {quote(progress)}"
        )
    return progress


@contextmanager
def computing(progress: Progress | None, text: str) -> Iterator[Tick]:
    """Report the progress of the block if it takes over two seconds. Also report when the engine is being compiled.

    >>> with computing(None, "simulating") as tick:
    ...     tick(0, 1, 2, "ring")
    """
    progress = check_progress(progress)
    with progress.task(text, LATE_S) as tick:

        def report(note: str) -> None:
            progress.note(note)
            tick(0, 0, 0, "compiling")

        with reporting_compilation(report):
            yield tick


class Interruption:
    """Records whether an interrupt ended a block."""

    came = False


@contextmanager
def keeping(results: Sized) -> Iterator[Interruption]:
    """Suppress a KeyboardInterrupt in the block, unless ``results`` is empty. Yield a record of the interrupt."""
    interruption = Interruption()
    try:
        yield interruption
    except KeyboardInterrupt:
        if not results:
            raise
        interruption.came = True


class TerminalProgress(Progress):
    """Reports progress on standard error, on rank 0 only."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True, quiet=not is_first_rank())

    @contextmanager
    def task(self, text: str, late_s: float = 0.0) -> Iterator[Tick]:
        """Show the progress of the block. A thread updates it, so that it also changes while compiled code runs."""
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
        self.console.print(text, soft_wrap=True)


class _Lines:
    every_s = PLAIN_EVERY

    def __init__(self, console: Console, text: str) -> None:
        self.console, self.text, self.begun = console, text, time.monotonic()
        self.done, self.total, self.now, self.is_shown = 0, 0, "", False

    def tick(self, rank: int, done: int, total: int, now: str) -> None:
        self.now = now
        if done or total:
            self.done, self.total = done, total

    def begin(self) -> None:
        self.is_shown = True
        self.console.print(f"{make_printable(self.text)} ...", soft_wrap=True)

    def look(self) -> None:
        counted = f"{self.done:,}/{self.total:,} {self.now}".rstrip() if self.total else self.now
        elapsed = f"{time.monotonic() - self.begun:.0f} s"
        self.console.print(f"  {', '.join(filter(None, (counted, elapsed)))}", soft_wrap=True)

    def end(self, is_done: bool) -> None:
        if self.is_shown and is_done:
            self.console.print(f"  done in {time.monotonic() - self.begun:.1f} s")


class _Bar(_Lines):
    every_s = 1 / BARS_A_SECOND

    def __init__(self, console: Console, text: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # slow to import

        super().__init__(console, text)
        words, now_doing = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[now]}"))
        columns = (words, BarColumn(bar_width=24), now_doing, TimeElapsedColumn())
        self.bars = Progress(*columns, console=console, auto_refresh=False)
        self.bar = self.bars.add_task(make_printable(text), total=None, now="")

    def begin(self) -> None:
        self.is_shown = True
        self.bars.start()

    def look(self) -> None:
        left_s = self.bars.tasks[0].time_remaining
        left = [f"{timedelta(seconds=round(left_s))} left"] if left_s else []
        now = make_printable(", ".join(filter(None, [self.now, *left])))
        self.bars.update(self.bar, completed=self.done, total=self.total or None, now=now, refresh=True)

    def end(self, is_done: bool) -> None:
        if self.is_shown:
            self.look()
            self.bars.stop()


def _show(shown: _Lines, ended: Event, late_s: float) -> None:
    if late_s:
        if ended.wait(late_s):
            return
        shown.begin()
    while not ended.wait(shown.every_s):
        shown.look()


def draw_to(answer: Any, path: Path | None, json_to: str | None) -> Callable[[], None]:
    """Return a function that draws a result into ``path`` and prints the path. If ``path`` is None, it does nothing."""

    def draw() -> None:
        if path is not None:
            with computing(TerminalProgress(), f"drawing {path}"):
                answer.draw(path)
            make_console(quiet=json_to == "-").print(f"The picture: {path}", soft_wrap=True)

    return draw
