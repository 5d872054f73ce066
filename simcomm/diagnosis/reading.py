"""Files of any of the known formats, as facts: found out what each is, bounded in size, never executed or unpickled."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json, read_bytes
from collectives.records.kineto import LOOKED_AT, is_profile, unpack
from simcomm.diagnosis.evidence.facts import Fact, Facts
from simcomm.diagnosis.readers import devices, nccl_log, nccl_tests, program_log, run_records, topology_xml
from simcomm.diagnosis.readers.lines import LogLine, number_lines

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # what PowerShell writes
PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
AS_JSON = "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[1] + '.json', 'w'))"
KNOWN = (
    "the output of nccl-tests or rccl-tests (text, or JSON of -J), a log of NCCL_DEBUG=INFO, nvidia-smi topo -m, "
    "NCCL's topology or graph XML, lspci -vv, ibstat, ibv_devinfo, ethtool, nvidia-smi, p2pBandwidthLatencyTest, "
    "torch's profile or its table, flight recorder (JSON) or watchdog log, a program's log with its warnings or "
    "exception, py-spy dump, or a Trace, metrics.jsonl or bench --json of ringlab"
)


class LineReader(NamedTuple):
    """A format of which a text may hold lines."""

    name: str
    read: Callable[[str, list[LogLine]], Iterable[Fact]]


LINE_READERS = (
    LineReader("nccl-tests", nccl_tests.read),
    LineReader("NCCL's log", nccl_log.read),
    LineReader("nvidia-smi topo -m", devices.read_paths),
    LineReader("devices", devices.read),
    LineReader("addresses and links", devices.read_addresses),
    LineReader("rates between pairs", devices.read_rates),
    LineReader("torch's table of kernels", run_records.read_kernel_table),
    LineReader("a program's log", program_log.read_messages),
    LineReader("torch's watchdog", program_log.read_watchdog),
    LineReader("stacks", program_log.read_stacks),
    LineReader("step times", program_log.read_step_times),
)


def read_facts(paths: Iterable[Path | str]) -> Facts:
    """Return what the files say. Raise InputError that names the file, the line and what would be accepted."""
    facts, given = Facts(), [each for path in paths for each in _files_of(Path(path))]
    files = [path for path in given if path.is_file() and _holds_profile(path)]  # of one run, a rank each
    for number, path in enumerate(given):
        names = {"torch's profile"} if path in files and number > given.index(files[0]) else set[str]()
        for name, fact in () if names else _read(path, files):
            names.add(name)
            facts.add(fact)
            check_read(path, len(facts), Gigabyte.ENTRIES, "facts")
        if not names:
            raise InputError(f"{path}: nothing in it is known; there may be {KNOWN}")
        facts.files.append((str(path), ", ".join(sorted(names))))
    return facts


def _files_of(path: Path) -> Iterator[Path]:
    """Yield the files of a folder in which there is no profile, by name; else the path itself."""
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else []
    if files and not any(map(_holds_profile, files)):
        yield from files
    else:
        yield path


def _holds_profile(path: Path) -> bool:
    """Return whether a file is a profile of torch's, packed or not."""
    if path.suffix != ".gz" or not path.is_file():
        return is_profile(path)
    try:
        with gzip.open(path) as file:
            return b'"traceEvents"' in file.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return False


def _read(path: Path, files: Sequence[Path]) -> Iterator[tuple[str, Fact]]:
    """Yield each fact of a file with the name of its format; ``files`` are the run_records, read with their first."""
    if path.is_dir() or path in files:
        yield from (("torch's profile", fact) for fact in run_records.read(files if path in files else [path]))
        return
    most = FileBytes.PROFILER if path.name.endswith((".json", ".json.gz")) else FileBytes.USUAL
    content = unpack(path, read_bytes(path, most), most)
    if content[:2] in PICKLED:
        raise InputError(
            f'{path}: a pickle, which can run programs and is not read; where it was made: python -c "{AS_JSON}" FILE'
        )
    if b"\0" in content[:4096] and content[:2] not in UTF_16:
        raise InputError(f"{path}: a binary file; there may be {KNOWN}")
    text = _decode(path, content)
    head = text.lstrip()[:1]
    if head == "{":
        yield from _read_json(path, text)
    elif head == "<":
        yield from (("NCCL's topology", fact) for fact in topology_xml.read(str(path), text))
    else:
        yield from _read_lines(path, text)


def _decode(path: Path, content: bytes) -> str:
    if content[:2] in UTF_16:
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: begins as UTF-16 text and goes on as none") from error
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text") from error


def _read_json(path: Path, text: str) -> Iterator[tuple[str, Fact]]:
    if run_records.is_trace(text):
        yield from (("a trace", fact) for fact in run_records.read([path]))
        return
    if run_records.is_metrics(text):
        yield from (("metrics", fact) for fact in run_records.read_metrics(path, text))
        return
    try:
        content: Any = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if isinstance(content, dict) and program_log.is_dump(content):
        yield from (("a flight recorder", fact) for fact in program_log.read_dump(path, content))
    elif isinstance(content, dict) and content.get("kind") == "bench":
        yield from (("ringlab bench", fact) for fact in run_records.read_bench(path, content))
    elif isinstance(content, dict) and "results" in content and "config" in content:
        yield from (("nccl-tests", fact) for fact in nccl_tests.read_json_file(path))
    else:
        raise InputError(f"{path}: JSON of another kind; there may be {KNOWN}")


def _read_lines(path: Path, text: str) -> Iterator[tuple[str, Fact]]:
    raw = text.splitlines()
    check_read(path, len(raw), Gigabyte.ENTRIES, "lines")
    lines = number_lines(raw)
    for reader in LINE_READERS:
        yield from ((reader.name, fact) for fact in reader.read(str(path), lines))
