"""What every test may rely on."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def signals_as_in_a_terminal() -> Iterator[None]:
    """An interrupt interrupts, and a command that is started ends by a hangup, also where nohup or ``&`` started us."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGHUP)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # of this, unlike of SIG_IGN, a new program hears not
    yield
    for number, handler in before:
        signal.signal(number, handler)
