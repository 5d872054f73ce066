"""Exits on signals after all ``finally`` blocks have run, so that no process or temporary folder remains.

This module is imported first, so that an interrupt during other imports is handled too.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from types import FrameType

INTERRUPTED = 130  # exit status, the usual one after SIGINT
WORD = "ringlab: interrupted\n"
UNHEARD_S = 0.5  # time that machine code, which Python cannot interrupt, may continue after an interrupt ...
UNWINDING_S = 5.0  # ... and Python's time to end processes and save results, which is long on a busy machine
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it


class Terminated(BaseException):
    """Raised on SIGTERM or SIGHUP. It is not a ``SystemExit``, because a user's program may raise that."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status, self.name = 128 + number, signal.Signals(number).name


class Signals:
    """The state of this process: whether it was interrupted or its command has ended, and the exit status."""

    interrupted = False
    leaving = False  # whether the command has ended, so that nothing remains to be saved after an interrupt
    status: int | None = None  # the exit status, once the command has ended


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt. On a second interrupt, or after the command has ended, end the process at once."""
    if Signals.interrupted or Signals.leaving:
        end_now()
    Signals.interrupted = True
    raise KeyboardInterrupt


def end_now() -> None:
    """Report the interrupt and end this process at once, without running ``finally`` blocks."""
    os.write(2, ((SHOW_CURSOR if os.isatty(2) else "") + WORD).encode())
    os._exit(INTERRUPTED)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """End the block on SIGINT, SIGTERM or SIGHUP, and exit with 128 plus the signal's number.

    Ranks of a launcher only handle SIGINT, because the launcher ends them with the other signals.
    """
    handlers = {signal.SIGINT: interrupt}
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():  # a launcher ends its ranks itself, by signals to all at once
        handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _terminate)
    before = {number: signal.getsignal(number) for number in handlers}
    usual = (signal.SIG_DFL, signal.default_int_handler, interrupt)  # nohup ignores some signals
    for number in (number for number in handlers if before[number] in usual):
        signal.signal(number, handlers[number])
    Signals.interrupted = False
    try:
        yield
    except Terminated as end:
        with suppress(OSError):  # the terminal may be gone
            os.write(2, f"ringlab: ended by {end.name}\n".encode())
        sys.exit(end.status)
    except BaseException:
        if not Signals.interrupted:
            raise
        sys.stdout.flush()
        sys.exit(INTERRUPTED)  # other code may have turned the interrupt into another exception
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)


def watch_interrupts() -> None:
    """End this process soon after an interrupt, even in compiled code.

    Python runs signal handlers only after compiled code. Therefore, a thread reads the signals from a pipe.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # the parent process makes this process ignore interrupts
    signal.signal(signal.SIGINT, interrupt)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    Thread(target=_watch, args=(read,), daemon=True).start()


def leave() -> None:
    """Flush the output and end this process, because Python's own shutdown ignores interrupts."""
    if Signals.status is None:
        return  # Python has not reported an error yet
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # Python reports this error
    os._exit(Signals.status)


def _watch(pipe: int) -> None:
    while number := os.read(pipe, 1):
        if number[0] == signal.SIGINT:
            Event().wait(UNHEARD_S)
            if Signals.interrupted:
                Event().wait(UNWINDING_S - UNHEARD_S)
            end_now()
