"""How a command ends on a signal: through its ``finally`` blocks, so that no process and no folder is left."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into ``SystemExit`` inside the block; they may reach all our processes at once."""
    numbers = () if "RANK" in os.environ else (signal.SIGTERM, signal.SIGHUP)  # torchrun's ranks have none
    before = {number: signal.getsignal(number) for number in numbers}
    for number in (number for number in numbers if before[number] is signal.SIG_DFL):  # nohup has it ignored
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
