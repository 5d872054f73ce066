"""Detect hangs of NCCL, and report their location before torch's watchdog aborts the process.

On a GPU, no host call blocks on a message, so a hang raises no exception. Torch's watchdog aborts the process after the
group's timeout, without naming a step. A thread in each rank therefore reports a call shortly before this timeout.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

MESSAGES = ("nccl:send", "nccl:recv")  # how names of single messages begin
LOOK_S = 0.5  # between two checks
MARGIN_S = 10.0  # from the report of a hang to the watchdog's abort


class Pending(NamedTuple):
    """A call that was queued on the GPU and is not complete yet."""

    text: str
    age_s: float  # since the host posted it
    timeout_s: float  # the timeout of its group

    @property
    def hangs(self) -> bool:
        """Whether the call is so old that torch's watchdog is about to abort the process."""
        return self.age_s >= max(self.timeout_s / 2, self.timeout_s - MARGIN_S)


Look = Callable[[], Pending | None]
Report = Callable[[str], None]


def print_hang(text: str) -> None:
    """Print the description of a hang to stderr. Torch's watchdog ends the process later."""
    sys.stderr.write(f"ringlab: {text}\n")
    sys.stderr.flush()


def exit_on_hang(rank: int, timeout_s: float) -> Report:
    """Return a function that prints the description of a hang on ``rank`` and then exits with status 1."""

    def report(text: str) -> None:
        print_hang(f"timed out after {timeout_s:g} s; rank {rank}: {text}")
        os._exit(1)  # the main thread may be blocked in CUDA, where it receives no exception

    return report


class _Watch:
    looks: tuple[Look, ...] = ()
    report: Report | None = print_hang
    thread: threading.Thread | None = None


def report_hangs_by(report: Report | None) -> None:
    """Set the function that reports this process's hangs. With None, this process does not report hangs."""
    _Watch.report = report


def watch_by(look: Look) -> None:
    """Let the thread that detects hangs call ``look`` every ``LOOK_S`` seconds. Start the thread if necessary."""
    _Watch.looks = (*dict.fromkeys((*_Watch.looks, look)),)
    if _Watch.thread is None:
        _Watch.thread = threading.Thread(target=_look_again, name="ringlab hangs", daemon=True)
        _Watch.thread.start()


def _look_again() -> None:
    with suppress(RuntimeError, ValueError):  # the communicator was aborted, or the rank ends
        while not look_once():
            time.sleep(LOOK_S)


def look_once() -> bool:
    """Call each registered function once, and report the first hang. Return whether a hang was reported."""
    pending = [call for call in [look() for look in _Watch.looks] if call is not None and call.hangs]
    if pending and _Watch.report is not None:
        _Watch.report(pending[0].text)
        return True
    return False


def oldest_unfinished() -> Pending | None:
    """Return NCCL's oldest unfinished call from torch's flight recorder, or None if all calls are done.

    Torch lists a group of messages as one call, "nccl:coalesced". It also lists each message of the group, but their
    state stays "scheduled", so they are skipped.
    """
    from torch._C import _distributed_c10d

    dump = getattr(_distributed_c10d, "_dump_nccl_trace_json", None)  # only if torch is built with NCCL
    listed: dict[str, Any] = {} if dump is None else json.loads(dump(includeCollectives=True, onlyActive=True))
    for entry in listed.get("entries", ()):
        name, state = entry.get("profiling_name", "a call"), entry.get("state")
        if state == "completed" or (state == "scheduled" and name.startswith(MESSAGES)):
            continue
        number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", "?")
        group, *_ = entry.get("process_group", "?")  # its name and its description
        age_s = time.time() - entry.get("time_created_ns", time.time_ns()) / 1e9
        timeout_s = entry.get("timeout_ms", float("inf")) / 1e3
        return Pending(f"{name}, number {number} of group {group}, is {state}", age_s, timeout_s)
    return None


def describe_unfinished() -> str:
    """Return a description of NCCL's oldest unfinished call, or "" if all calls are done or NCCL is not in use.

    >>> describe_unfinished()
    ''
    """
    with suppress(Exception):  # the rank may be failing, and its failure matters more
        if oldest_unfinished in _Watch.looks and (pending := oldest_unfinished()):
            return pending.text
    return ""
