"""The entry point of ``ringlab``, ``python -m ringlab`` and torchrun."""

import atexit
import gc

from ringlab.shared.signals import Signals, end_now, leave, watch_interrupts

GARBAGE_EVERY = 400_000  # new objects; collecting garbage during imports takes a tenth of the start and finds none


def main() -> None:
    """Run the command line and exit. Interrupts also work while modules are being imported."""
    gc.set_threshold(GARBAGE_EVERY)
    try:
        try:
            watch_interrupts()
            atexit.register(leave)  # first, because handlers run in reverse order
            from ringlab.cli import main as run_command_line

            run_command_line()
            Signals.status = 0
        except SystemExit as end:
            if isinstance(end.code, int | None):
                Signals.status = end.code or 0
            raise
        finally:
            Signals.leaving = True  # from now on, an interrupt ends the process at once
    finally:
        if Signals.interrupted:
            end_now()  # Python's own shutdown takes up to two seconds with torch


if __name__ == "__main__":
    main()
