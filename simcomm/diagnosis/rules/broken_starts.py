"""Messages that say why a run never starts or breaks."""

from collections.abc import Iterator

from simcomm.diagnosis.evidence.causes import Cause, stands_still
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import Adapter, RankEnded, TestTable
from simcomm.diagnosis.evidence.messages import MESSAGES


def find_broken_start(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield what each known message says, but one in the log of a test that went on to its end."""
    ended = {table.place.file for table in case.facts.of(TestTable) if table.is_ended}
    for key, message in MESSAGES.items():
        complaint = case.facts.complaint(key)
        if complaint is None or complaint.place.file in ended:
            continue
        asked = case.facts.settings().get("NCCL_SOCKET_IFNAME")
        loopback = _loopback(case)
        if key == "connection" and loopback is not None:
            yield stands_still(
                "wrong-interface",
                f"NCCL meets over {loopback.name}, which leads to no other host",
                loopback.place,
                message.remedy,
                0.9,
            )
        elif key == "connection" and asked is not None:
            yield stands_still(
                "wrong-interface",
                f"NCCL_SOCKET_IFNAME={asked.value} does not lead to the other host",
                asked.place,
                message.remedy,
                0.75,
            )
        else:
            yield stands_still(message.cause, message.text, complaint.place, message.remedy, message.strength)


ENDED_BY = {  # by exit status: the cause, in words, what to do, and how surely
    -9: (
        "host-memory",
        "was killed (SIGKILL), as the kernel does where the host's memory is used up, or a scheduler at its limit",
        "dmesg -T | grep -i oom on that host; fewer workers of the loader, more memory or a higher limit",
        0.8,
    ),
    -7: (
        "shm-too-small",
        "was ended by SIGBUS, as where /dev/shm is full",
        "--shm-size=8g or --ipc=host for the container",
        0.8,
    ),
    -11: (
        "rank-ended",
        "was ended by SIGSEGV",
        "its core dump or faulthandler says where; look at versions of torch, NCCL and driver",
        0.7,
    ),
    -15: (
        "rank-ended",
        "was ended by SIGTERM: something else stopped it",
        "look at the scheduler, and at the log of the node before",
        0.5,
    ),
    -6: ("rank-ended", "aborted itself (SIGABRT), as torch's watchdog does", "look at what it printed before", 0.4),
}


def find_ended_rank(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank whose process ended first, by what started it."""
    for one in case.facts.of(RankEnded):
        usual = "rank-ended", f"ended with status {one.status}", "its own traceback in the log says why", 0.5
        name, how, remedy, strength = ENDED_BY.get(one.status, usual)
        where = f" on {one.host}" * bool(one.host)
        yield stands_still(name, f"rank {one.rank}{where} {how}; it was the first", one.place, remedy, strength)


def _loopback(case: DiagnosedCase) -> Adapter | None:
    """Return an interface that reaches no other host."""
    return next((one for one in case.facts.of(Adapter) if one.name in ("lo", "docker0", "virbr0")), None)


RULES = (find_broken_start, find_ended_rank)
