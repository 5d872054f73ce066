"""``python -m ringlab``, which is also what ``ringlab`` and torchrun start."""

from ringlab.terminal.shutdown import Signals, end_now, watch_interrupts


def main() -> None:
    """Run the command line and exit, also when an interrupt comes before the command line is imported."""
    try:
        watch_interrupts()
        from ringlab.cli import main as run_command_line

        run_command_line()
    finally:
        Signals.leaving = True
        if Signals.interrupted:
            end_now()  # without Python's own ending, which with torch loaded takes up to two seconds on a busy machine


if __name__ == "__main__":
    main()
