"""Progress on standard error: bars on a terminal, plain lines elsewhere, nothing from ranks other than 0."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from ringlab.answers.progress import Tick

PLAIN_EVERY = 5.0  # seconds between plain lines of one task


class TerminalProgress:
    """Where a command says what it is doing: a ``ringlab.answers.progress.Progress``."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=not is_first_rank(), highlight=False)

    @contextmanager
    def task(self, text: str) -> Iterator[Tick]:
        """Show something that takes a while until the block ends; the callback moves it on."""
        with self._bar(text) if self.console.is_terminal else self._lines(text) as tick:
            yield tick

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def _bar(self, text: str) -> Iterator[Tick]:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[now]}"))
        per_second = 2  # drawing takes a core from the ranks
        with Bars(*columns, TimeElapsedColumn(), console=self.console, refresh_per_second=per_second) as bars:
            task = bars.add_task(text, total=None, now="")

            def tick(rank: int, done: int, total: int, now: str) -> None:
                bars.update(task, completed=done, total=total, now=now)

            yield tick

    @contextmanager
    def _lines(self, text: str) -> Iterator[Tick]:
        begin = last = time.monotonic()
        self.console.print(f"{text} ...")

        def tick(rank: int, done: int, total: int, now: str) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_EVERY:
                last = time.monotonic()
                self.console.print(f"  {done}/{total} {now}")

        yield tick
        self.console.print(f"  done in {time.monotonic() - begin:.1f} s")


def is_first_rank() -> bool:
    """Return whether this process is the one that prints: rank 0 under torchrun, any process elsewhere."""
    return os.environ.get("RANK", "0") == "0"
