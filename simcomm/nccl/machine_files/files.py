"""Read facts from files. The format is detected, the size is limited, and nothing in a file is executed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from simcomm.nccl.machine_files import host_tools, nccl_log, topology_xml
from simcomm.nccl.machine_files.facts import Fact, Facts, MeasuredRun
from simcomm.nccl.measured.nccl_tests import read_table
from simcomm.nccl.pasted import FilePlace, number_lines, read_pasted

KNOWN = (
    "the output of nccl-tests or rccl-tests, a log of NCCL_DEBUG=INFO, nvidia-smi, "
    "nvidia-smi topo -m, or the XML of NCCL_TOPO_DUMP_FILE, which replaces lspci, ibstat and ethtool"
)


def read_facts(paths: Iterable[Path | str]) -> Facts:
    """Read facts about a machine from files, and from all files in directories.

    Raise InputError if a file is invalid or contains no facts.
    """
    facts, total = Facts(), 0
    for path in (file for each in paths for file in _files_of(Path(each))):
        before = total
        for total, fact in enumerate(_read(path), start=before + 1):
            facts.add(fact)
            check_read(path, total, Gigabyte.ENTRIES, "facts")
        if total == before:
            raise InputError(f"{path}: the format is not known or the file is empty; pass {KNOWN}")
    return facts


def _files_of(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]


def _read(path: Path) -> Iterator[Fact]:
    file, text = str(path), read_pasted(path)
    if text.lstrip().startswith("<"):
        yield from topology_xml.read(file, text)
        return
    lines = number_lines(text)
    check_read(path, len(lines), Gigabyte.ENTRIES, "lines")
    yield from (MeasuredRun(FilePlace(file, run.line), run) for run in read_table(file, lines).runs)
    yield from nccl_log.read(file, lines)
    yield from host_tools.read(file, lines)
