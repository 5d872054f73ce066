"""Progress on standard error: bars on a terminal, plain lines elsewhere, nothing from ranks other than 0."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from ringlab.answers.progress import Tick
from ringlab.terminal.console import make_console
from ringlab.terminal.plain_text import make_printable

PLAIN_EVERY = 5.0  # seconds between plain lines of one task


class TerminalProgress:
    """Where a command says what it is doing: a ``ringlab.answers.progress.Progress``."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True, quiet=not is_first_rank())

    @contextmanager
    def task(self, text: str) -> Iterator[Tick]:
        """Show something that takes a while until the block ends; the callback moves it on."""
        with self._bar(text) if self.console.is_terminal else self._lines(text) as tick:
            yield tick

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=True)

    @contextmanager
    def _bar(self, text: str) -> Iterator[Tick]:
        words, now_doing = (TextColumn(field, markup=False) for field in ("{task.description}", "{task.fields[now]}"))
        columns = (words, BarColumn(bar_width=24), now_doing)
        per_second = 2  # drawing takes a core from the ranks
        with Bars(*columns, TimeElapsedColumn(), console=self.console, refresh_per_second=per_second) as bars:
            task = bars.add_task(make_printable(text), total=None, now="")

            def tick(rank: int, done: int, total: int, now: str) -> None:
                bars.update(task, completed=done, total=total, now=make_printable(now))

            yield tick

    @contextmanager
    def _lines(self, text: str) -> Iterator[Tick]:
        begin = last = time.monotonic()
        self.console.print(f"{text} ...", soft_wrap=True)

        def tick(rank: int, done: int, total: int, now: str) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_EVERY:
                last = time.monotonic()
                self.console.print(f"  {done}/{total} {now}", soft_wrap=True)

        yield tick
        self.console.print(f"  done in {time.monotonic() - begin:.1f} s")


def is_first_rank() -> bool:
    """Return whether this process is the one that prints: rank 0 under torchrun, any process elsewhere."""
    return os.environ.get("RANK", "0") == "0"
