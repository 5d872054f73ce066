"""How far a sweep is: told to a function, or drawn as a bar on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.errors import InputError
from collectives.quoting import quote

Told = Callable[[int, int], object]  # called with how many predictions are done, and of how many


@contextmanager
def told(progress: bool | Told | None, done: int, total: int) -> Iterator[Told]:
    """Within the context, what is to be called as predictions get done: a bar's, the one given, or one without effect.

    The bar, for ``progress=True``, begins at ``done``; where standard error is no terminal it is one line at the end.
    Raises InputError for what is neither True, False, None nor callable.

    >>> with told(lambda *now: print(now), 0, 8) as tell:
    ...     tell(2, 8)
    (2, 8)
    """
    if callable(progress):
        yield progress
    elif progress is True:
        with _bar(done, total) as tell:
            yield tell
    elif progress is None or progress is False:
        yield lambda done, total: None
    else:
        raise InputError(f"progress is {quote(progress)}; give True for a bar, or a function of two whole numbers")


@contextmanager
def _bar(done: int, total: int) -> Iterator[Told]:
    from rich.console import Console  # slow to import, and only for this
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("predictions", total=total, completed=done)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield tell
