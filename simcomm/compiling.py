"""Notify the user before functions are compiled to machine code, which takes up to a few minutes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

NOTE = "compiling the engine for this machine, which happens only once and takes seconds to minutes"

_report: ContextVar[Callable[[str], None] | None] = ContextVar("report_compilation", default=None)


@contextmanager
def reporting_compilation(report: Callable[[str], None]) -> Iterator[None]:
    """Within the context, call ``report`` with a message the first time that machine code is compiled.

    >>> with reporting_compilation(lambda text: print(text[:20])):
    ...     report_compilation()
    ...     report_compilation()
    compiling the engine
    """
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_compilation() -> None:
    """Call the function that ``reporting_compilation`` has set, if this is the first compilation in the context."""
    report = _report.get()
    if report is not None:
        _report.set(None)
        report(NOTE)
