"""Output of nccl-tests, as printed or pasted: every version is read, and inconsistent rows are skipped.

The formats are those of public threads, pages and repositories, which are named. All values are invented.
"""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_tests_output import FORMS, form_table, printed, table, table_row

from collectives import InputError
from collectives.costs.bounds import bus_factor
from simcomm.nccl.measured.nccl_tests import read_nccl_tests

MEASURED = [(8, 34.66), (1 << 20, 61.5), (1 << 30, 4523.1)]
LINES = table(MEASURED).splitlines()
FIRST = next(k for k, line in enumerate(LINES) if line.split()[:1] == ["8"]) + 1
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
SIZES_AND_TIMES = st.lists(
    st.tuples(st.integers(0, 1 << 31).map(lambda parts: 32 * parts), st.floats(0.5, 1e7, allow_nan=False)),
    min_size=1,
    max_size=8,
)


def read(folder: Path, text: str, collective: str | None = None):
    path = folder / "run.txt"
    path.write_text(text)
    return read_nccl_tests(path, collective).as_one_run()


def skipped(folder: Path, text: str, collective: str | None = None) -> list[str]:
    """Return why rows are skipped, without the file name, even if no row remains."""
    path = folder / "run.txt"
    path.write_text(text)
    try:
        reasons = [reason for _, reason in read_nccl_tests(path, collective).skipped]
    except InputError as error:
        reasons = [str(error)]
    assert all(reason.startswith(str(path)) for reason in reasons)
    return [reason.removeprefix(str(path)) for reason in reasons]


def test_nccl_tests_output_is_read_with_ranks_hosts_and_version(tmp_path: Path):
    run = read(tmp_path, table(MEASURED, hosts=2, gpus=4, per_process=4))
    assert (run.ranks, run.hosts, run.gpus, run.processes) == (8, 2, 4, 2)
    assert (run.gpu_name, run.version) == ("NVIDIA A100-SXM4-80GB", (2, 28))
    assert [(row.collective, row.nbytes) for row in run.rows] == [("all_reduce", nbytes) for nbytes, _ in MEASURED]
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in MEASURED])


@pytest.mark.parametrize("form", ["table", *FORMS])
@settings(max_examples=25)
@given(rows=SIZES_AND_TIMES, collective=st.sampled_from(COLLECTIVES))
def test_output_of_each_format_is_read(form: str, rows: list[tuple[int, float]], collective: str, tmp_path_factory):
    text = table(rows, collective) if form == "table" else form_table(form, rows, collective)
    run = read(tmp_path_factory.mktemp("x"), text, None if form == "table" else collective)
    later = 1.1 if form == "in place" else 1.0
    assert [row.nbytes for row in run.rows] == [nbytes for nbytes, _ in rows]
    assert [row.seconds for row in run.rows] == pytest.approx([us * later / 1e6 for _, us in rows], rel=0.06)
    assert {row.collective for row in run.rows} == {collective}


@given(data=st.data())
def test_nccl_tests_row_with_a_changed_digit_is_skipped(data, tmp_path_factory):
    """Change any digit of size and count, or any but the last of a bandwidth, which may be due to rounding."""
    rows, collective = [(1 << 20, 61.5), (1 << 30, 4523.1)], data.draw(st.sampled_from(COLLECTIVES))
    lines = table(rows, collective).splitlines()
    index = FIRST - 1 + data.draw(st.integers(0, 1))
    cells = lines[index].split()
    column = data.draw(st.sampled_from([0, 1, 6, 7, 10, 11]))
    digits = [place for place, character in enumerate(cells[column]) if character.isdigit()]
    place = data.draw(st.sampled_from(digits if column < 2 else digits[:-1]))
    other = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != cells[column][place]]))
    cells[column] = cells[column][:place] + other + cells[column][place + 1 :]
    lines[index] = "  ".join(cells)
    (reason,) = skipped(tmp_path_factory.mktemp("x"), "\n".join(lines))
    assert reason.startswith(f":{index + 1}: ")


def test_collective_of_old_output_is_inferred_from_its_numbers(tmp_path: Path):
    devices = [f"#   Rank  {rank} Pid  77 on node device  {rank} [0x0{rank}] Tesla V100-SXM2-16GB" for rank in range(4)]
    columns = "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error"
    row = " 4194304  262144  float  100.0  41.94  31.46  0e+00  99.0  42.37  31.78  0e+00"
    text = "\n".join(["# nThread 1 nGpus 4 minBytes 8", "# Using devices", *devices, "#", columns, row])
    run = read(tmp_path, text)
    assert [measured.collective for measured in run.rows] == ["all_gather"]
    assert run.guesses == ("collective: all_gather; the table could also be from all_to_all",)
    assert [measured.collective for measured in read(tmp_path, text, "alltoall").rows] == ["all_to_all"]
    assert not read(tmp_path, "./build/all_gather_perf -g 4\n" + text).guesses
    others = row.replace("41.94", "31.46").replace("42.37", "31.78")  # of 2018: only what comes from others counts
    (measured,) = read(tmp_path, text.replace(row, others)).rows
    assert (measured.algbw, measured.busbw) == (pytest.approx(41.94, abs=0.01), 31.46)
    (note, *_) = skipped(tmp_path, text.replace("0e+00", "4e-05"))
    assert "error 4e-05 is larger than a rounding error (3e-05)" in note


def test_hypercube_rows_count_the_bytes_of_the_other_ranks(tmp_path: Path):
    text = table([(1 << 20, 100.0)], "all_gather").replace("all_gather_perf", "hypercube_perf")
    assert "busbw 9.18 must be 1 times algbw for hypercube" in skipped(tmp_path, text)[0]
    (row,) = read(tmp_path, text.replace("10.49", " 9.18")).rows
    assert (row.collective, row.algbw) == ("hypercube", pytest.approx(10.49, abs=0.01))


def test_nccl_tests_runs_with_different_ranks_stay_separate(tmp_path: Path):
    path = tmp_path / "run.txt"
    path.write_text(table(MEASURED) + table(MEASURED, gpus=4))
    output = read_nccl_tests(path)
    assert [(run.ranks, len(run.rows)) for run in output.runs] == [(8, 3), (4, 3)]
    with pytest.raises(InputError, match=r":\d+: this run has 4 ranks on 1 host, but the first run has 8 ranks"):
        output.as_one_run()


def with_row(text: str) -> str:
    return "\n".join([*LINES[: FIRST - 1], text, *LINES[FIRST:]])


GOOD = table_row(8, 34.66, "all_reduce", 8)
SKIPPED = {  # a broken row: why it is skipped
    GOOD[:50]: "not a row of nccl-tests",
    GOOD.replace(" float ", " flota "): "not a row of nccl-tests",
    GOOD.replace(" float ", "double "): "size 8 is inconsistent with count 2: all_reduce of 2 double has 16 bytes",
    GOOD.replace(" -1 ", "  8 "): "root must be -1 or a rank below 8, not 8",
    GOOD[:-1] + "5": "in place: 5 wrong values; the collective returned wrong results",
    GOOD[:-16] + GOOD[-16:].replace("0.00", "3.00"): "in place: busbw 3 must be 1.75 times algbw",
    GOOD.replace("34.66", "-4.66"): "not a row of nccl-tests",
    GOOD.replace("34.66", " 0.00"): "time must be positive, not 0",
    GOOD.replace("0.00", "7.00", 1): "algbw 7 is inconsistent with 8 bytes in 34.66 us",
}


@pytest.mark.parametrize("text", SKIPPED, ids=lambda text: SKIPPED[text][:40])
def test_invalid_row_is_skipped_and_its_line_reported(tmp_path: Path, text: str):
    (reason,) = skipped(tmp_path, with_row(text))
    assert reason.startswith(f":{FIRST}: ") and SKIPPED[text] in reason
    assert [row.nbytes for row in read(tmp_path, with_row(text)).rows] == [1 << 20, 1 << 30]


REFUSED = {  # a file without a row that can be used: the first reason
    "": ": no row of nccl-tests or rccl-tests; use the output of all_reduce_perf",
    "{}": ": JSON of nccl-tests -J is not supported; save the table that nccl-tests prints",
    table(MEASURED).replace("values : 0 OK", "values : 2 FAILED"): "2 FAILED values out of bounds, by nccl-tests' own",
    table(MEASURED).replace("  time ", "cputime "): "the column cputime contains launch times, not those of the",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: REFUSED[text][:40])
def test_file_without_a_usable_row_is_rejected(tmp_path: Path, text: str):
    with pytest.raises(InputError):
        read(tmp_path, text)
    assert REFUSED[text] in skipped(tmp_path, text)[0]


def test_file_that_is_not_text_is_rejected(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_nccl_tests(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="a binary file; expected text"):
        read_nccl_tests(tmp_path / "binary")
    with pytest.raises(InputError, match="unknown collective 'all'"):
        read_nccl_tests(tmp_path / "none", "all")


@given(text=st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_random_text_is_rejected_as_output_of_nccl_tests(text: str, tmp_path_factory):
    with pytest.raises(InputError):
        read(tmp_path_factory.mktemp("x"), text)


ROWS = [(1 << 20, 41.67), (1 << 24, 171.3), (1 << 28, 2101.7), (1 << 30, 8123.4)]
TABLE = table(ROWS)
TABLE_LINES = TABLE.splitlines()
HEAD = next(at for at, line in enumerate(TABLE_LINES) if line.startswith("#       size"))
BODY = [line for line in TABLE_LINES if re.match(r" +\d", line)]
LOG = "nodea:41205:41260 [2] NCCL INFO Channel 05/1 : 2[2] -> 3[3] via P2P/CUMEM/read"


def read_rows(path: Path, content: str | bytes, **options: int) -> list[tuple[str, int, int, float]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    output = read_nccl_tests(path, **options)
    assert not output.skipped
    rows = [(run.ranks, row) for run in output.runs for row in run.rows]
    return [(row.collective, ranks, row.nbytes, 1e6 * (row.time(ranks) or 0.0)) for ranks, row in rows]


def prefixed(prefix: str) -> str:
    return "\n".join(prefix + line for line in TABLE_LINES)


def wrapped(width: int) -> str:
    return "\n".join(line[at : at + width] for line in TABLE_LINES for at in range(0, max(1, len(line)), width))


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
    return "\n".join(prefix + line for line in [*TABLE_LINES[: HEAD + 2], *broken])


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
    "journalctl": prefixed("Nov 28 10:00:59 gpu07 srun[4711]: "),
    "a mail's reply to a reply": prefixed("> > "),
    "cat -n": "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(TABLE_LINES, start=1)),
    "rccl-tests of 2022, docs.lumi-supercomputer.eu": RCCL,
    "rccl-tests without names of GPUs, ROCm/rccl pull 2078": re.sub(r"NVIDIA A100-SXM4-80GB", "", TABLE),
    "reST with marks, AMD's validation guide": "\n\n".join(f":mark:`{' '.join(line.split())}`" for line in TABLE_LINES),
    "a terminal of 80 columns": wrapped(80),
    "PowerShell's redirection": TABLE.replace("\n", "\r\n").encode("utf-16"),
    "packed by gzip": gzip.compress(TABLE.encode()),
    "Latin-1 with non-breaking spaces": TABLE.replace("  ", "\xa0 ").encode("latin-1"),
    "an editor's dashes and wide spaces": TABLE.replace(" -1 ", " \u22121 ").replace("     ", "\u3000"),
    "script(1)": "\n".join(f"\x1b]0;user@host\x07\x1b[1;32m{line}\x1b[0m" for line in TABLE_LINES),
    "logs of ranks within rows, NVIDIA/nccl issue 1453": with_log_in_rows("[0] "),
    "a log in each row": with_log_in_rows(""),
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
    "words behind a row": "\n".join(f"{line}   <-- here" if line in BODY[2:] else line for line in TABLE_LINES),
    "three backquotes": f"Result:\n```\n{TABLE}```\n8 GPUs, 3 runs\n",
}  # fmt: skip


@pytest.mark.parametrize("form", PASTED)
def test_pasted_table_is_parsed_in_each_known_format(tmp_path: Path, form: str) -> None:
    rows = read_rows(tmp_path / "pasted.txt", PASTED[form])
    assert [row[:3] for row in rows] == [("all_reduce", 8, nbytes) for nbytes, _ in ROWS]
    assert [row[3] for row in rows] == pytest.approx([us for _, us in ROWS], rel=2e-4)


def test_markdown_table_without_times_needs_the_number_of_ranks(tmp_path: Path) -> None:
    """The table has message size and busbw, as for p6-b200 in awsome-distributed-training."""
    text = "### all_reduce\n| Message size | busbw (GB/s) |\n|---|---|\n" + in_markdown(size_in_mb, busbw)
    assert {row[1::2] for row in read_rows(tmp_path / "a.md", text)} == {(0, 0.0)}
    rows = read_rows(tmp_path / "a.md", text, ranks=8)
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
    rows = [(1024, 53.9), (2048, 55.5), (4096, 56.8), (8192, 56.7), (16384, 56.7)]
    run = read(tmp_path, "\n".join(line for line in table(rows, gpus=16).splitlines() if "Rank" not in line))
    assert run.ranks == 16 and re.fullmatch(r"ranks: 16; the ratio of busbw to algbw allows \d+ to \d+", run.guesses[0])
    text = "\n".join(line for line in table([(8, 56.1)], gpus=16).splitlines() if "Rank" not in line)
    assert read(tmp_path, text).ranks == 0


def test_truncated_device_list_is_ignored_with_a_note(tmp_path: Path) -> None:
    run = read(tmp_path, "\n".join(line for line in TABLE_LINES if not re.search("Rank  [4-7]", line)))
    assert (run.ranks, run.hosts, run.gpu_name) == (8, 0, "NVIDIA A100-SXM4-80GB")
    assert "the list of devices is incomplete" in run.guesses[0]


def test_nccl_tests_built_without_mpi_is_reported(tmp_path: Path) -> None:
    """nccl-tests was built without MPI=1, so each process is a rank 0: NVIDIA/nccl-tests issue 107."""
    devices = [f"#   Rank  0 Pid   1010 on host{host} device  0 [0x00] Tesla V100-SXM2-16GB" for host in "ab"]
    rows = [f"{1 << 20} {1 << 18} float sum -1 {us} {1048.576 / us:.2f} 0.00 0" for us in (30.0, 31.0)]
    text = "\n".join(["# nThread 1 nGpus 1", "# nThread 1 nGpus 1", *devices, *[TABLE_LINES[HEAD][:88]] * 2, *rows])
    run = read(tmp_path, text)
    assert (run.ranks, len(run.rows)) == (1, 2)
    assert run.guesses == (
        "line 3: several processes (hosts hosta, hostb) have rank 0; Ringlab assumes that each ran alone",
    )


@pytest.mark.parametrize("length", [60, 75, 100])
def test_truncated_last_row_is_skipped(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.txt"
    path.write_text("\n".join([*TABLE_LINES[: HEAD + 2], *BODY[:-1], BODY[-1][:length]]))
    output = read_nccl_tests(path)
    assert [row.nbytes for row in output.runs[0].rows] == [nbytes for nbytes, _ in ROWS[:-1]]
    ((line, reason),) = output.skipped
    assert line == HEAD + 2 + len(BODY) and ("not a row" in reason or "cut off" in reason)


def test_rows_cut_after_out_of_place_columns_are_read(tmp_path: Path) -> None:
    text = "\n".join([*TABLE_LINES[: HEAD + 2], *(line[:100] for line in BODY)])
    rows = read_rows(tmp_path / "narrow.txt", text)
    assert [row[3] for row in rows] == pytest.approx([us for _, us in ROWS], rel=2e-4)
