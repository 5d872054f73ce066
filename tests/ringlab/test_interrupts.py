"""An interrupted command ends within about a second with a message and status 130, and keeps its results so far."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from ringlab.shared.signals import exit_on_signals

IN_MACHINE_CODE = """
import hashlib
from ringlab.shared.signals import watch_interrupts
watch_interrupts()
print("begins", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes without a step of Python
"""


IMPORTING = """
import sys
import ringlab.shared.signals as shutdown
watch = shutdown.watch_interrupts

def watch_and_tell():
    watch()
    print("begins", flush=True)

shutdown.watch_interrupts = watch_and_tell
from ringlab.__main__ import main
sys.argv = ["ringlab", "predict", "faults"]
main()
"""


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def start(*arguments: object) -> "subprocess.Popen[str]":
    call, pipe = [sys.executable, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(call, stdout=pipe, stderr=pipe, text=True, errors="replace")


@pytest.mark.parametrize(("script", "after"), [(IMPORTING, 0.1), (IN_MACHINE_CODE, 0.5)])
def test_interrupt_in_imports_and_compiled_code_ends_the_command(script: str, after: float):
    with start("-c", script) as process:
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        time.sleep(after)
        assert interrupt(process) == (130, "", "ringlab: interrupted\n")


def test_interrupts_ignored_by_the_parent_stay_ignored():
    script = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ignored", flush=True)
sys.argv = ["ringlab", "list"]
runpy.run_module("ringlab", run_name="__main__")
"""
    with start("-c", script) as process:
        assert process.stdout and process.stdout.readline() == "ignored\n"
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


FEW, MANY = (0.02, 0.06), tuple(n / 500 for n in range(5, 100))  # seconds


@pytest.mark.parametrize("delays", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_interrupt_at_the_start_ends_the_command(delays: tuple[float, ...]):
    """Before the command line is imported, Python prints the message."""
    for after in delays:
        with start("-m", "ringlab", "doctor") as process:
            time.sleep(after)
            status, out, err = interrupt(process)
        if err == "ringlab: interrupted\n":
            assert (status, out) == (130, "")
        else:
            assert status and (not err or "KeyboardInterrupt" in err), (after, status, err)


def test_import_does_not_change_the_interrupt_handler():
    script = "import ringlab, signal; print(signal.getsignal(2) is signal.default_int_handler)"
    with start("-c", script) as process:
        assert process.communicate(timeout=60)[0] == "True\n"


@pytest.mark.parametrize("delays", [(0.0, 0.01), pytest.param(MANY, marks=pytest.mark.slow)])
def test_interrupt_after_the_last_output_ends_the_command(delays: tuple[float, ...]):
    for after in delays:
        with start("-m", "ringlab", "explain", "dgx-h100") as process:
            assert process.stdout is not None and process.stdout.readline()  # all is written at once, at the end
            time.sleep(after)
            status, _, err = interrupt(process)
        assert (status, err) in [(130, "ringlab: interrupted\n"), (0, "")], after


def test_registered_exit_handlers_run_at_the_end():
    script = "import sys; sys.argv = ['ringlab', '--version']\nfrom ringlab.__main__ import main\nimport atexit\n"
    script += "import ringlab.cli as command\nrun = command.main\n"
    script += "command.main = lambda: (atexit.register(print, 'done'), run())\nmain()"
    with start("-c", script) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1], err) == (0, "done", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_program_that_catches_systemexit_ends_on_a_signal(number: int, capfd: pytest.CaptureFixture) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup has SIGHUP ignored, which stays so
    try:
        with pytest.raises(SystemExit) as ended, exit_on_signals(), suppress(Exception, SystemExit):
            os.kill(os.getpid(), number)
            time.sleep(5)
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    assert capfd.readouterr().err == f"ringlab: ended by {signal.Signals(number).name}\n"
