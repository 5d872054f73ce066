"""The entry point of ``ringlab``, ``python -m ringlab`` and torchrun."""

import gc

from ringlab.shared.signals import Signals, end_now, leave_soon, watch_interrupts

GARBAGE_EVERY = 400_000  # new objects: what is imported is no garbage, and looking through it is a tenth of the start


def main() -> None:
    """Run the command line and exit, also on an interrupt during the imports."""
    gc.set_threshold(GARBAGE_EVERY)
    try:
        try:
            watch_interrupts()
            leave_soon()
            from ringlab.cli import main as run_command_line

            run_command_line()
            Signals.status = 0
        except SystemExit as end:
            if isinstance(end.code, int | None):
                Signals.status = end.code or 0
            raise
        finally:
            Signals.leaving = True  # from here on an interrupt ends the process itself
    finally:
        if Signals.interrupted:
            end_now()  # without Python's own ending, which with torch loaded takes up to two seconds on a busy machine


if __name__ == "__main__":
    main()
