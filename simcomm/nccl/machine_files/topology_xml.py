"""Read the topology that NCCL writes to ``NCCL_TOPO_DUMP_FILE``, with expat. Entities and DTDs are rejected."""

import re
from collections.abc import Mapping
from xml.parsers import expat

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.quoting import quote
from simcomm.nccl.machine_files.facts import Adapter, Fact, GpuSlot, NvLinks, Processor
from simcomm.nccl.pasted import FilePlace

MOST_DEPTH = 64
GENERATIONS = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}  # of PCIe, by GT/s
GPU_CLASSES, SWITCHED = ("0x0302", "0x0300"), "0x068000"
VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


def read(file: str, text: str) -> list[Fact]:
    """Return the facts in a topology. If the XML is invalid, raise an InputError that names the line."""
    facts, depth, elements = list[Fact](), 0, 0
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        place = FilePlace(file, parser.CurrentLineNumber)
        depth, elements = depth + 1, elements + 1
        check_read(str(place), elements, Gigabyte.ENTRIES, "elements")
        if depth > MOST_DEPTH:
            raise InputError(f"{place}: more than {MOST_DEPTH} nested elements")
        if elements == 1 and name != "system":
            raise InputError(f"{place}: <{name[:40]}> is not NCCL's topology, which starts with <system>")
        facts.extend(_facts_of(place, name, attributes))

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def reject_declaration(*_: object) -> None:
        place = FilePlace(file, parser.CurrentLineNumber)
        raise InputError(f"{place}: declares a document type or entity; NCCL's topology has none")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reject_declaration
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{file}:{error.lineno}: not XML: {expat.errors.messages[error.code]}") from error
    return facts


def _facts_of(place: FilePlace, name: str, attributes: Mapping[str, str]) -> list[Fact]:
    if name == "cpu":
        is_arm = attributes.get("arch", "").startswith(("arm", "aarch"))
        vendor = "arm" if is_arm else VENDORS.get(attributes.get("vendor", ""))
        return [Processor(place, vendor)] if vendor else []
    if name == "pci":
        lanes = int(_number(place, attributes, "link_width"))
        speed = re.match(r"\d+(?:\.\d+)?(?= |$)", attributes.get("link_speed", ""))
        generation = GENERATIONS.get(float(speed[0]), 0) if speed else 0
        is_gpu = attributes.get("class", "").startswith(GPU_CLASSES)
        return [GpuSlot(place, attributes.get("busid", ""), generation, lanes)] if is_gpu else []
    if name == "nvlink":
        return [NvLinks(place, attributes.get("tclass") == SWITCHED)]
    if name == "net":
        kind = "gdr" if attributes.get("gdr") == "1" else "no gdr"
        gbit = _number(place, attributes, "speed") / 1e3  # the file has Mbit/s
        return [Adapter(place, attributes.get("name", ""), kind, gbit)]
    return []


def _number(place: FilePlace, attributes: Mapping[str, str], key: str) -> float:
    text = attributes.get(key)
    if text is None or text in ("", "Unknown"):
        return 0.0
    if not re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", text):
        raise InputError(f"{place}: {key} = {quote(text)} is not a number")
    return float(text)
