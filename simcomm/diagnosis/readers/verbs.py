"""Lines of ``ibv_devinfo -v`` and ``show_gids``: addresses and MTUs of NICs; and of ``nvidia-smi nvlink -s``."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import ActiveMtu, Fact, Gid, LinkState
from simcomm.diagnosis.readers.lines import LogLine

NIC = re.compile(r"^\s*hca_id:\s*(\S+)")
GID = re.compile(r"^\s*GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})")
SHOWN = re.compile(r"^(\w+)\s+\d+\s+(\d{1,4})\s+([0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){7})\s")
MTU = re.compile(r"^\s*active_mtu:\s*(\d{3,5})\b")
GPU = re.compile(r"^GPU (\d+): .*\(UUID")
LINK = re.compile(r"^\s*Link (\d{1,2}): (?:(<?inactive>?)|[\d.]+ GB/s)\s*$", re.IGNORECASE)


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what a NIC or GPU says of its addresses and links."""
    nic, gpu = "", -1
    for line in lines:
        if found := NIC.match(line.text):
            nic = found[1]
        elif nic and (found := GID.match(line.text)):
            yield Gid(line.place(file), nic, int(found[1]), found[2].lower())
        elif found := SHOWN.match(line.text):
            yield Gid(line.place(file), found[1], int(found[2]), found[3].lower())
        elif nic and (found := MTU.match(line.text)):
            yield ActiveMtu(line.place(file), nic, int(found[1]))
        elif found := GPU.match(line.text):
            gpu = int(found[1])
        elif gpu >= 0 and (found := LINK.match(line.text)):
            yield LinkState(line.place(file), gpu, int(found[1]), found[2] is None)
