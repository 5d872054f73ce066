"""Reading nccl-tests' output: every version is supported, and rows with inconsistent numbers are skipped."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_tests_output import FORMS, as_json, form_table, table, table_row

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


def test_table_has_rows_ranks_hosts_and_version(tmp_path: Path):
    run = read(tmp_path, table(MEASURED, hosts=2, gpus=4, per_process=4))
    assert (run.ranks, run.hosts, run.gpus, run.processes) == (8, 2, 4, 2)
    assert (run.gpu_name, run.version) == ("NVIDIA A100-SXM4-80GB", (2, 28))
    assert [(row.collective, row.nbytes) for row in run.rows] == [("all_reduce", nbytes) for nbytes, _ in MEASURED]
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in MEASURED])


def test_json_has_rows_ranks_hosts_and_version(tmp_path: Path):
    run = read(tmp_path, as_json(MEASURED, processes=8, hosts=2))
    assert (run.ranks, run.hosts, run.processes, run.version) == (8, 2, 8, (2, 28))
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in MEASURED])
    parsed = read(tmp_path, as_json(MEASURED, processes=1, per_process=8))
    assert (parsed.ranks, parsed.hosts, parsed.processes) == (8, 1, 1)


WITH_NAMES = {"table": table, "JSON": as_json}


@pytest.mark.parametrize("form", [*WITH_NAMES, *FORMS])
@settings(max_examples=25)
@given(rows=SIZES_AND_TIMES, collective=st.sampled_from(COLLECTIVES))
def test_output_of_every_version_and_option_is_read(
    form: str, rows: list[tuple[int, float]], collective: str, tmp_path_factory
):
    text = WITH_NAMES[form](rows, collective) if form in WITH_NAMES else form_table(form, rows, collective)
    run = read(tmp_path_factory.mktemp("x"), text, None if form in WITH_NAMES else collective)
    later = 1.1 if form == "in place" else 1.0
    assert [row.nbytes for row in run.rows] == [nbytes for nbytes, _ in rows]
    assert [row.seconds for row in run.rows] == pytest.approx([us * later / 1e6 for _, us in rows], rel=0.06)
    assert {row.collective for row in run.rows} == {collective}


@given(data=st.data())
def test_table_row_is_skipped_when_a_digit_is_changed(data, tmp_path_factory):
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


@given(data=st.data())
def test_json_row_is_skipped_when_a_digit_is_changed(data, tmp_path_factory):
    collective = data.draw(st.sampled_from(COLLECTIVES))
    content = json.loads(as_json([(1 << 20, 61.5), (1 << 30, 4523.1)], collective))
    result = content["results"][data.draw(st.integers(0, 1))]
    key = data.draw(st.sampled_from(["size", "count", "alg_bw", "bus_bw"]))
    holder = result if key in result else result[data.draw(st.sampled_from(["out_of_place", "in_place"]))]
    step = 10.0 ** data.draw(st.integers(-5, 0)) if key not in result else 1
    holder[key] += step * data.draw(st.sampled_from([-1, 1]))
    (reason,) = skipped(tmp_path_factory.mktemp("x"), json.dumps(content))
    assert re.search("is inconsistent with|must be .* times algbw", reason)


def test_old_output_without_names_is_recognized(tmp_path: Path):
    devices = [f"#   Rank  {rank} Pid  77 on node device  {rank} [0x0{rank}] Tesla V100-SXM2-16GB" for rank in range(4)]
    columns = "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error"
    row = " 4194304  262144  float  100.0  41.94  31.46  0e+00  99.0  42.37  31.78  0e+00"
    text = "\n".join(["# nThread 1 nGpus 4 minBytes 8", "# Using devices", *devices, "#", columns, row])
    run = read(tmp_path, text)
    assert [measured.collective for measured in run.rows] == ["all_gather"]
    assert run.guesses == ("collective: all_gather; the numbers also fit all_to_all",)
    assert [measured.collective for measured in read(tmp_path, text, "alltoall").rows] == ["all_to_all"]
    assert not read(tmp_path, "./build/all_gather_perf -g 4\n" + text).guesses
    others = row.replace("41.94", "31.46").replace("42.37", "31.78")  # of 2018: only what comes from others counts
    (measured,) = read(tmp_path, text.replace(row, others)).rows
    assert (measured.algbw, measured.busbw) == (pytest.approx(41.94, abs=0.01), 31.46)
    (note, *_) = skipped(tmp_path, text.replace("0e+00", "4e-05"))
    assert "error 4e-05 is larger than rounding explains (at most 3e-05)" in note


def test_hypercube_counts_bytes_from_other_ranks(tmp_path: Path):
    text = table([(1 << 20, 100.0)], "all_gather").replace("all_gather_perf", "hypercube_perf")
    assert "busbw 9.18 must be 1 times algbw for hypercube" in skipped(tmp_path, text)[0]
    (row,) = read(tmp_path, text.replace("10.49", " 9.18")).rows
    assert (row.collective, row.algbw) == ("hypercube", pytest.approx(10.49, abs=0.01))


def test_logs_and_mpirun_prefixes_are_ignored(tmp_path: Path):
    lines = table(MEASURED).splitlines()
    log = "host00:77:77 [0] NCCL INFO Bootstrap : Using eth0"
    noisy = [log, "8 GPUs", *lines[:FIRST], log, "", *lines[FIRST:], "2 NCCL INFO comm destroyed", "", "done"]
    assert len(read(tmp_path, "\n".join(noisy)).rows) == 3
    assert len(read(tmp_path, "\n".join(f"[1,0]<stdout>:{line}" for line in lines)).rows) == 3


def test_output_with_several_collectives_is_read(tmp_path: Path):
    both = read(tmp_path, table(MEASURED) + table(MEASURED[1:2], "all_gather"))
    assert [row.collective for row in both.rows] == ["all_reduce"] * 3 + ["all_gather"]


def test_nccl_tests_runs_with_different_ranks_stay_separate(tmp_path: Path):
    path = tmp_path / "run.txt"
    path.write_text(table(MEASURED) + table(MEASURED, gpus=4))
    output = read_nccl_tests(path)
    assert [(run.ranks, len(run.rows)) for run in output.runs] == [(8, 3), (4, 3)]
    with pytest.raises(InputError, match=r":\d+: this run has 4 ranks on 1 host, but an earlier run has 8 ranks"):
        output.as_one_run()


def with_row(text: str) -> str:
    return "\n".join([*LINES[: FIRST - 1], text, *LINES[FIRST:]])


GOOD = table_row(8, 34.66, "all_reduce", 8)
SKIPPED = {  # a broken row: why it is skipped
    GOOD[:50]: "is not a row of nccl-tests",
    GOOD[: len(GOOD) // 2 + 12]: "is not a row of nccl-tests",
    GOOD + " 7": "is not a row of nccl-tests",
    GOOD.replace(" float ", " flota "): "is not a row of nccl-tests",
    GOOD.replace(" float ", "double "): "size 8 is inconsistent with count 2: as double that is 16 bytes",
    GOOD.replace(" -1 ", "  8 "): "root must be -1 or a rank below 8, not 8",
    GOOD[:-1] + "5": "in place: 5 wrong values; the collective returned wrong results",
    GOOD[:-1] + "-": "is not a row of nccl-tests",
    GOOD[:-16] + GOOD[-16:].replace("0.00", "3.00"): "in place: busbw 3 must be 1.75 times algbw",
    GOOD.replace("34.66", "  nan"): "is not a row of nccl-tests",
    GOOD.replace("34.66", "-4.66"): "is not a row of nccl-tests",
    GOOD.replace("34.66", " 0.00"): "time must be positive, not 0",
    GOOD.replace("     0 ", "     3 ", 1): "3 wrong values; the collective returned wrong results",
    GOOD.replace("0.00", "7.00", 1): "algbw 7 is inconsistent with 8 bytes in 34.66 us",
}


@pytest.mark.parametrize("text", SKIPPED, ids=lambda text: SKIPPED[text][:40])
def test_invalid_row_is_skipped_and_its_line_reported(tmp_path: Path, text: str):
    (reason,) = skipped(tmp_path, with_row(text))
    assert reason.startswith(f":{FIRST}: ") and SKIPPED[text] in reason
    assert [row.nbytes for row in read(tmp_path, with_row(text)).rows] == [1 << 20, 1 << 30]


REFUSED = {  # a file without a row that can be used: the first reason
    "": ": no row of nccl-tests or rccl-tests; use the output of all_reduce_perf",
    "{": ": not JSON: ",
    "{}": ": 'config' is missing; use the output of nccl-tests -J",
    table(MEASURED).replace("values : 0 OK", "values : 2 FAILED"): "2 FAILED values out of bounds, by nccl-tests' own",
    table(MEASURED).replace("values : 0 OK", "values : 0 FAILED"): "0 FAILED values out of bounds",
    table(MEASURED).replace("  time ", "cputime "): "the column cputime contains launch times, not those of the",
    as_json(MEASURED).replace('"okay": "true"', '"okay": "false"'): "0 FAILED values out of bounds",
    as_json(MEASURED).replace('"pid": 1000', '"pid": null', 1): "pid = None is not what nccl-tests writes",
    as_json(MEASURED).replace('"ngpus": 1', '"ngpus": 0', 1): "8 devices with 0 GPUs each",
}  # fmt: skip
SKIPPED_IN_JSON = {
    as_json(MEASURED).replace('"time": 34.66', '"time": "nan"', 1): "time = 'nan' is not what nccl-tests writes",
    as_json(MEASURED).replace('"nwrong": 0.0', '"nwrong": 2.0', 1): "2 wrong values",
    as_json(MEASURED).replace('"time": 34.66', '"cpu_time": 34.66', 1): "cpu_time contains launch times",
    as_json(MEASURED).replace('"type": "float"', '"type": 4', 1): "type = 4 is not what nccl-tests writes",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: REFUSED[text][:40])
def test_file_without_a_usable_row_is_rejected(tmp_path: Path, text: str):
    with pytest.raises(InputError):
        read(tmp_path, text)
    assert REFUSED[text] in skipped(tmp_path, text)[0]


@pytest.mark.parametrize("text", SKIPPED_IN_JSON, ids=lambda text: SKIPPED_IN_JSON[text][:40])
def test_invalid_json_row_is_skipped(tmp_path: Path, text: str):
    (reason,) = skipped(tmp_path, text)
    assert SKIPPED_IN_JSON[text] in reason
    assert len(read(tmp_path, text).rows) == 2


def test_file_that_is_not_text_is_rejected(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_nccl_tests(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="a binary file; expected text"):
        read_nccl_tests(tmp_path / "binary")
    with pytest.raises(InputError, match="unknown collective 'all'"):
        read_nccl_tests(tmp_path / "none", "all")


@given(text=st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_random_text_is_rejected_as_nccl_tests_output(text: str, tmp_path_factory):
    with pytest.raises(InputError):
        read(tmp_path_factory.mktemp("x"), text)


@given(data=st.data())
def test_mangled_output_is_read_correctly_or_skipped(data, tmp_path_factory):
    text = data.draw(st.sampled_from([table(MEASURED), as_json(MEASURED)]))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    path = tmp_path_factory.mktemp("x") / "run.txt"
    path.write_text(text[:start] + data.draw(st.text('0123456789.e+-#\n{}[],: "', max_size=5)) + text[stop:])
    try:
        runs = read_nccl_tests(path).runs
    except InputError:
        return
    for run in runs:
        for row in run.rows:
            assert row.seconds is not None and row.seconds > 0
            assert row.busbw == pytest.approx(
                (row.algbw or 0) * bus_factor(row.collective, run.ranks), abs=0.6, rel=0.06
            )
