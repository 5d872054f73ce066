"""Read the topology that NCCL writes to ``NCCL_TOPO_DUMP_FILE``, with expat. Entities and DTDs are rejected."""

import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.nccl.machine_files.facts import Adapter, Fact, GpuSlot, NvLinks, Processor
from simcomm.nccl.pasted import FilePlace

MOST_DEPTH = 64
GT = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}  # GT/s
GPU_CLASSES, SWITCHED = ("0x0302", "0x0300"), "0x068000"
VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


class TopologyReader:
    """Collects facts from the elements of a topology file while expat parses it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.facts: list[Fact] = []
        self.elements, self.path, self.root = 0, list[tuple[str, dict[str, str]]](), ""
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.reject_declaration
        self.parser.EntityDeclHandler = self.reject_declaration

    def reject_declaration(self, *_: Any) -> None:
        """Raise InputError, because NCCL's files have no declarations and entities can grow without limit."""
        raise InputError(f"{self.place()}: declares a document type or entity; NCCL's topology has none")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Read the start of an element. Raise InputError for too many or too deeply nested elements."""
        self.elements += 1
        where = str(self.place())
        check_read(where, self.elements, Gigabyte.ENTRIES, "elements")
        if len(self.path) >= MOST_DEPTH:
            raise InputError(f"{where}: more than {MOST_DEPTH} nested elements")
        self.root = self.root or name
        self.path.append((name, attributes))
        if self.elements == 1 and name != "system":
            raise InputError(f"{where}: <{name[:40]}> is not NCCL's topology, which starts with <system>")
        taken = getattr(self, f"take_{name}", None)
        if taken is not None:
            taken(attributes)

    def end(self, _: str) -> None:
        self.path.pop()

    def place(self) -> FilePlace:
        return FilePlace(self.file, self.parser.CurrentLineNumber)

    def number(self, attributes: dict[str, str], key: str) -> float:
        """Return an attribute as a number; 0 if unknown. Raise InputError if its text is not a number."""
        text = attributes.get(key)
        if text is None or text in ("", "Unknown"):
            return 0.0
        if not re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", text):
            raise InputError(f"{self.place()}: {key} = {quote(text)} is not a number")
        return float(text)

    def take_cpu(self, attributes: dict[str, str]) -> None:
        is_arm = attributes.get("arch", "").startswith(("arm", "aarch"))
        vendor = "arm" if is_arm else VENDORS.get(attributes.get("vendor", ""))
        if vendor:
            self.facts.append(Processor(self.place(), vendor))

    def take_pci(self, attributes: dict[str, str]) -> None:
        speed = attributes.get("link_speed", "").split(" ")[0]
        lanes = int(self.number(attributes, "link_width"))
        if attributes.get("class", "").startswith(GPU_CLASSES):
            self.facts.append(GpuSlot(self.place(), attributes.get("busid", ""), GT.get(speed, 0), lanes))

    def take_nvlink(self, attributes: dict[str, str]) -> None:
        self.facts.append(NvLinks(self.place(), attributes.get("tclass") == SWITCHED))

    def take_net(self, attributes: dict[str, str]) -> None:
        """Add a NIC. The file states its speed in Mbit/s."""
        kind = "gdr" if attributes.get("gdr") == "1" else "no gdr"
        self.facts.append(
            Adapter(self.place(), attributes.get("name", ""), kind, self.number(attributes, "speed") / 1e3)
        )


def read(file: str, text: str) -> Iterator[Fact]:
    """Yield the facts in a topology. Raise InputError that names the line."""
    builder = TopologyReader(file)
    try:
        builder.parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{file}:{error.lineno}: not XML: {expat.errors.messages[error.code]}") from error
    yield from builder.facts
