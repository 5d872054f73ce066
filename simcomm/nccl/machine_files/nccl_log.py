"""Read the log that NCCL and RCCL write with ``NCCL_DEBUG=INFO``, from version 2.4 on.

The formats are defined in src/init.cc, src/transport/*.cc, src/graph/*.cc and src/misc/*.cc of NVIDIA/nccl, and in
aws-ofi-nccl.
"""

import re
from collections.abc import Iterator

from simcomm.nccl.machine_files.facts import (
    Adapter,
    CommRank,
    Fact,
    LibraryVersion,
    LoggedHop,
    NetworkUsed,
    VariableSet,
)
from simcomm.nccl.measured.nccl_tests import VERSION
from simcomm.nccl.pasted import FilePlace, PastedLine

OF_NCCL = re.compile(
    r"(?:(?P<host>[^\s:\[\]]+):\d+:\d+ )?(?:\[(?P<device>\d+)\] )?(?:\S+\.(?:cc|cpp|cu|h):\d+ )?"
    r"(?:\S+:\d+ )?NCCL (?:INFO|WARN|TRACE|CALL) ?(?P<message>.*)"
)
SET = re.compile(r"(NCCL_[A-Z0-9_]{2,40}|RCCL_[A-Z0-9_]{2,40}) set (?:by environment )?to (\S.*)")
ASSIGNED = re.compile(
    r"(?:^|\s)(?:-x\s+|export\s+|-env\s+|--env\s+|-e\s+)?(NCCL_[A-Z0-9_]{2,40})=(['\"]?)([^\s'\"\\]+)\2"
)
HOP = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? ?: \d+(?:\[[^\]]*\])? -> \d+.* via (P2P|SHM|NET)\b/?(.*)$")
COMM = re.compile(r"comm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+)(?:.* nNodes (\d+))?")
USING = re.compile(r"Using network (\S.*)")
ADAPTER = re.compile(r"\[\d+\]\s?(\{[^}]*\}|[^\s:;,]+)(?::(\d+))?(?:/(\w+))?")
OLD_INTERFACE = re.compile(r"NET : Using interface ([^:\s]+):")
NET_RATE = re.compile(r"NET\[([\d.]+)\] - NET/(\S+)")


def read(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    """Yield the facts in NCCL's log lines, and the NCCL variables that command lines set."""
    for line in lines:
        if not line.text or line.text.startswith("#"):
            continue
        if "NCCL INFO Channel " in line.text and " -> " not in line.text:
            continue  # the order of a ring, the most frequent line
        place = line.place(file)
        if "CCL version" in line.text and (match := VERSION.search(line.text)):
            yield LibraryVersion(place, (int(match[1]), int(match[2])))
        if "NCCL " in line.text and (of_nccl := OF_NCCL.search(line.text)) is not None:
            yield from _read_message(place, of_nccl["host"] or "", of_nccl["message"])
        else:
            for match in ASSIGNED.finditer(line.text) if "NCCL_" in line.text else ():
                yield VariableSet(place, match[1], match[3])


def _read_message(place: FilePlace, host: str, message: str) -> Iterator[Fact]:
    if message.startswith(("Channel ", "Ring ")) and " -> " in message:
        if (match := HOP.search(message)) is not None:
            yield LoggedHop(place, match[1], match[2].partition("/")[0], is_gdr="/GDR" in match[2])
        return
    if match := SET.search(message):
        yield VariableSet(place, match[1], match[2].strip().rstrip("."))
    if match := COMM.search(message):
        yield CommRank(place, int(match[1]), int(match[2]), host, int(match[3] or 0))
    if match := NET_RATE.search(message):
        yield Adapter(place, match[2], "NET", float(match[1]) * 8)
    yield from _networks(place, message)


def _networks(place: FilePlace, message: str) -> Iterator[Fact]:
    if match := USING.search(message):
        yield NetworkUsed(place, match[1].strip())
    if match := OLD_INTERFACE.search(message):
        yield Adapter(place, match[1], "Socket")
    if match := re.search(r"NET/OFI Selected [Pp]rovider is (\S+)", message):
        yield NetworkUsed(place, f"OFI {match[1].rstrip(',')}")
    for start, kind in (("NET/IB : Using ", "IB"), ("NET/Socket : Using ", "Socket")):
        if start in message:
            listed = message.split(start, 1)[1].split(" ; OOB")[0].split("; OOB")[0]
            for match in ADAPTER.finditer(listed):
                yield Adapter(place, match[1], (match[3] or kind) if kind == "IB" else kind)
