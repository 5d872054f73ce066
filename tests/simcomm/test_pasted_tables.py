"""Tables of nccl-tests as people paste them: the numbers are read correctly, or the row is reported as skipped.

The formats are those of public threads, pages and repositories, which are named. All values are invented.
"""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from nccl_tests_output import printed, table

from collectives.costs.bounds import bus_factor
from simcomm.nccl.measured.nccl_tests import read_nccl_tests

ROWS = [(1 << 20, 41.67), (1 << 24, 171.3), (1 << 28, 2101.7), (1 << 30, 8123.4)]
TABLE = table(ROWS)
LINES = TABLE.splitlines()
HEAD = next(at for at, line in enumerate(LINES) if line.startswith("#       size"))
BODY = [line for line in LINES if re.match(r" +\d", line)]
LOG = "nodea:41205:41260 [2] NCCL INFO Channel 05/1 : 2[2] -> 3[3] via P2P/CUMEM/read"


def read(path: Path, content: str | bytes, **options: int) -> list[tuple[str, int, int, float]]:
    """Return the collective, ranks, bytes and microseconds of each row."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    output = read_nccl_tests(path, **options)
    assert not output.skipped
    return [(row.collective, run.ranks, *size_and_time(row, run.ranks)) for run in output.runs for row in run.rows]


def size_and_time(row, ranks: int) -> tuple[int, float]:
    return row.nbytes, 1e6 * (row.time(ranks) or 0.0)


def prefixed(prefix: str) -> str:
    return "\n".join(prefix + line for line in LINES)


def wrapped(width: int) -> str:
    return "\n".join(line[at : at + width] for line in LINES for at in range(0, max(1, len(line)), width))


def separated(separator: str, heads: str, *before: str) -> str:
    return "\n".join([heads, *(separator.join([*before, *line.split()]) for line in BODY)])


def in_markdown(*columns: Callable[[int, float], str]) -> str:
    return "\n".join("| " + " | ".join(column(*row) for column in columns) + " |" for row in ROWS)


def algbw(nbytes: int, us: float) -> str:
    return printed(nbytes / us / 1e3, 6)


def busbw(nbytes: int, us: float) -> str:
    return printed(nbytes / us / 1e3 * bus_factor("all_reduce", 8), 6)


def size_in_mb(nbytes: int, _: float) -> str:
    return f"{nbytes >> 20} MB"


def with_log_in_rows(prefix: str) -> str:
    """Insert a log line of each rank, written while rank 0 prints a row."""
    broken = [f"{line[:55]}{prefix}{LOG}\n{prefix}{LOG}\n{prefix}{line[55:]}" for line in BODY]
    return "\n".join(prefix + line for line in [*LINES[: HEAD + 2], *broken])


RCCL = (
    TABLE.replace("# nThread 1 nGpus 8 minBytes", "# nThread: 1 nGpus: 8 minBytes:")
    .replace("# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809", "rccl-tests: Version develop:83d38d9")
    .replace("# Collective test starting: all_reduce_perf", "$ ./build/all_reduce_perf -b 1M -e 1G -g 8")
    .replace(" Group  0", "")
    .replace(":00] NVIDIA A100-SXM4-80GB", ":00.0] Device 738c")
)
FULL = "size,count,type,redop,root,oop_time,oop_algbw,oop_busbw,oop_wrong,ip_time,ip_algbw,ip_busbw,ip_wrong"
PASTED: dict[str, str | bytes] = {
    "srun --label, https://slurm.schedmd.com/srun.html": prefixed(" 0: "),
    "mpirun --tag-output, aws/aws-k8s-tester pull 503": prefixed("[1,0]<stdout>:"),
    "docker compose logs": prefixed("nccl-tests-1  | "),
    "journalctl": prefixed("Nov 28 10:00:59 gpu07 srun[4711]: "),
    "kubectl logs --prefix --timestamps": prefixed("[pod/nccl-launcher-x/main] 2026-09-01T10:11:12.1Z "),
    "a mail's reply to a reply": prefixed("> > "),
    "cat -n": "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(LINES, start=1)),
    "rccl-tests of 2022, docs.lumi-supercomputer.eu": RCCL,
    "rccl-tests without names of GPUs, ROCm/rccl pull 2078": re.sub(r"NVIDIA A100-SXM4-80GB", "", TABLE),
    "reST with marks, AMD's validation guide": "\n\n".join(f":mark:`{' '.join(line.split())}`" for line in LINES),
    "a terminal of 80 columns": wrapped(80),
    "a terminal of 101 columns": wrapped(101),
    "PowerShell's redirection": TABLE.replace("\n", "\r\n").encode("utf-16"),
    "packed by gzip": gzip.compress(TABLE.encode()),
    "Latin-1 with non-breaking spaces": TABLE.replace("  ", "\xa0 ").encode("latin-1"),
    "an editor's dashes and wide spaces": TABLE.replace(" -1 ", " \u22121 ").replace("     ", "\u3000"),
    "script(1)": "\n".join(f"\x1b]0;user@host\x07\x1b[1;32m{line}\x1b[0m" for line in LINES),
    "logs of ranks within rows, NVIDIA/nccl issue 1453": with_log_in_rows("[0] "),
    "a log in each row": with_log_in_rows(""),
    "indented in a list": prefixed("      "),
    "Jira's table": "||size||count||type||redop||root||time||algbw||busbw||wrong||time||algbw||busbw||wrong||\n"
    + "\n".join(f"|{'|'.join(line.split())}|" for line in BODY),
    "CSV of awk, microsoft/sccl": separated(",", FULL.replace("_", "-").replace("wrong", "error")),
    "CSV of a script, with its own columns": separated(",", f"operation,mode,gpus,{FULL}", "all_reduce", "mpi", "8"),
    "CSV of a spreadsheet in Europe": separated(";", FULL.replace(",", ";")).replace(".", ","),
    "CSV with quotes": re.sub(r"[^,\n]+", r'"\g<0>"', separated(",", FULL)),
    "columns cut by awk": "#       size      time   algbw   busbw\n"
    + "\n".join("  ".join([line.split()[0], *line.split()[5:8]]) for line in BODY),
    "Markdown of a benchmark page, in ms": "| Data Size | Collective | Completion Time (ms) | Algbw (GB/s) | Busbw |\n"
    "| --- | --- | --- | --- | --- |\n"
    + in_markdown(
        lambda size, _: f"{size:,}", lambda *_: "ALL_REDUCE-1", lambda _, us: f"{us / 1e3:.5f}", algbw, busbw
    ),
    "Markdown of a README, bold": "| Size | Time (us) | algbw (GB/s) | **busbw** (GB/s) |\n|---|---|---|---|\n"
    + in_markdown(size_in_mb, lambda _, us: f"{us:.2f}", algbw, lambda *row: f"**{busbw(*row)}**"),
    "words behind a row": "\n".join(f"{line}   <-- here" if line in BODY[2:] else line for line in LINES),
    "three backquotes": f"Result:\n```\n{TABLE}```\n8 GPUs, 3 runs\n",
}  # fmt: skip


@pytest.mark.parametrize("form", PASTED)
def test_every_format_of_pasted_table_is_parsed(tmp_path: Path, form: str) -> None:
    rows = read(tmp_path / "pasted.txt", PASTED[form])
    assert [row[:3] for row in rows] == [("all_reduce", 8, nbytes) for nbytes, _ in ROWS]
    assert [row[3] for row in rows] == pytest.approx([us for _, us in ROWS], rel=2e-4)


def test_markdown_without_times_needs_the_ranks(tmp_path: Path) -> None:
    """The table has message size and busbw, as for p6-b200 in awsome-distributed-training."""
    text = "### all_reduce\n| Message size | busbw (GB/s) |\n|---|---|\n" + in_markdown(size_in_mb, busbw)
    assert {row[1::2] for row in read(tmp_path / "a.md", text)} == {(0, 0.0)}
    rows = read(tmp_path / "a.md", text, ranks=8)
    assert [row[3] for row in rows] == pytest.approx([us for _, us in ROWS], rel=5e-3)


@pytest.mark.parametrize(
    ("collective", "ranks"),
    [("all_reduce", 2), ("all_reduce", 16), ("all_gather", 3), ("reduce_scatter", 64), ("all_to_all", 12)],
)
def test_pasted_table_determines_the_number_of_ranks(tmp_path: Path, collective: str, ranks: int) -> None:
    """The number follows from busbw / algbw for all_reduce, and from size and count for other collectives."""
    rows = [(nbytes // (4 * ranks) * 4 * ranks, us) for nbytes, us in ROWS]
    lines = table(rows, collective, 1, ranks).replace("Collective test starting", "Measured").splitlines()
    text = "\n".join(line for line in lines if "Rank" not in line)
    path = tmp_path / f"{collective}.txt"
    path.write_text(text)
    (run,) = read_nccl_tests(path).runs
    assert (run.ranks, run.hosts, {row.collective for row in run.rows}) == (ranks, 0, {collective})


def test_pasted_table_reports_guessed_ranks(tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    rows = [(1024, 53.9), (2048, 55.5), (4096, 56.8), (8192, 56.7), (16384, 56.7)]
    path.write_text("\n".join(line for line in table(rows, gpus=16).splitlines() if "Rank" not in line))
    (run,) = read_nccl_tests(path).runs
    assert run.ranks == 16 and re.fullmatch(r"ranks: 16; busbw / algbw fits \d+ to \d+", run.guesses[0])
    path.write_text("\n".join(line for line in table([(8, 56.1)], gpus=16).splitlines() if "Rank" not in line))
    assert read_nccl_tests(path).runs[0].ranks == 0


def test_truncated_device_list_is_ignored_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt"
    path.write_text("\n".join(line for line in LINES if not re.search("Rank  [4-7]", line)))
    (run,) = read_nccl_tests(path).runs
    assert (run.ranks, run.hosts, run.gpu_name) == (8, 0, "NVIDIA A100-SXM4-80GB")
    assert "the device list is incomplete" in run.guesses[0]


def test_processes_that_measured_alone_are_reported(tmp_path: Path) -> None:
    """nccl-tests was built without MPI=1, so each process is a rank 0: NVIDIA/nccl-tests issue 107."""
    devices = [f"#   Rank  0 Pid   1010 on host{host} device  0 [0x00] Tesla V100-SXM2-16GB" for host in "ab"]
    rows = [f"{1 << 20} {1 << 18} float sum -1 {us} {1048.576 / us:.2f} 0.00 0" for us in (30.0, 31.0)]
    text = "\n".join(["# nThread 1 nGpus 1", "# nThread 1 nGpus 1", *devices, *[LINES[HEAD][:88]] * 2, *rows])
    path = tmp_path / "apart.txt"
    path.write_text(text)
    (run,) = read_nccl_tests(path).runs
    assert (run.ranks, len(run.rows)) == (1, 2)
    assert run.guesses == (
        "line 3: several processes list rank 0 (hosts hosta, hostb), so each is assumed to be measured alone",
    )


@pytest.mark.parametrize("length", [60, 75, 100])
def test_truncated_last_row_is_skipped(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.txt"
    path.write_text("\n".join([*LINES[: HEAD + 2], *BODY[:-1], BODY[-1][:length]]))
    output = read_nccl_tests(path)
    assert [row.nbytes for row in output.runs[0].rows] == [nbytes for nbytes, _ in ROWS[:-1]]
    ((line, reason),) = output.skipped
    assert line == HEAD + 2 + len(BODY) and "cut off" in reason


def test_table_of_truncated_rows_keeps_out_of_place_results(tmp_path: Path) -> None:
    text = "\n".join([*LINES[: HEAD + 2], *(line[:100] for line in BODY)])
    rows = read(tmp_path / "narrow.txt", text)
    assert [row[3] for row in rows] == pytest.approx([us for _, us in ROWS], rel=2e-4)
