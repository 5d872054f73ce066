"""What the kernel counted in a network namespace: frames that queues dropped, and TCP's timeouts."""

import json
from pathlib import Path
from typing import NamedTuple

from realcomm.emulation.tools import run_tool


class Counts(NamedTuple):
    """The counters of one namespace, which only grow."""

    drops: dict[str, int]  # frames dropped by the queue of each interface
    timeouts: int  # of TCP's retransmission timer
    retransmissions: int  # segments sent again


def read_counts() -> Counts:
    """Return the counters of the network namespace that this process is in."""
    drops: dict[str, int] = {}
    for queue in json.loads(run_tool("tc", ["-s", "-j", "qdisc", "show"])):
        drops[queue["dev"]] = drops.get(queue["dev"], 0) + int(queue.get("drops", 0))
    extended = _table(Path("/proc/self/net/netstat").read_text())
    basic = _table(Path("/proc/self/net/snmp").read_text())
    return Counts(drops, extended["TcpExt"]["TCPTimeouts"], basic["Tcp"]["RetransSegs"])


def _table(text: str) -> dict[str, dict[str, int]]:
    """Return the kernel's pairs of lines, names and then numbers, by the word before the colon."""
    lines = [line.split() for line in text.splitlines()]
    return {
        names[0].rstrip(":"): dict(zip(names[1:], map(int, numbers[1:]), strict=True))
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
    }
