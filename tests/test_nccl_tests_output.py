"""The strict reader of nccl-tests' output: what it prints is read, and what does not hold together is refused."""

import json
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
    return read_nccl_tests(path, collective)


def refusal(folder: Path, text: str, collective: str | None = None) -> str:
    with pytest.raises(InputError) as refused:
        read(folder, text, collective)
    message = str(refused.value)
    assert message.startswith(f"{folder / 'run.txt'}: ")
    return message.removeprefix(f"{folder / 'run.txt'}: ")


def test_a_table_says_what_was_measured_and_on_what(tmp_path: Path):
    run = read(tmp_path, table(MEASURED, hosts=2, gpus=4, per_process=4))
    assert (run.ranks, run.hosts, run.gpus, run.processes) == (8, 2, 4, 2)
    assert (run.gpu_name, run.version) == ("NVIDIA A100-SXM4-80GB", (2, 28))
    assert [(row.collective, row.nbytes) for row in run.rows] == [("all_reduce", nbytes) for nbytes, _ in MEASURED]
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in MEASURED])


def test_json_says_the_same(tmp_path: Path):
    run = read(tmp_path, as_json(MEASURED, processes=8, hosts=2))
    assert (run.ranks, run.hosts, run.processes, run.version) == (8, 2, 8, (2, 28))
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in MEASURED])
    one = read(tmp_path, as_json(MEASURED, processes=1, per_process=8))
    assert (one.ranks, one.hosts, one.processes) == (8, 1, 1)


@pytest.mark.parametrize("form", [table, as_json])
@given(rows=SIZES_AND_TIMES, collective=st.sampled_from(COLLECTIVES))
def test_whatever_is_printed_is_read(form, rows: list[tuple[int, float]], collective: str, tmp_path_factory):
    run = read(tmp_path_factory.mktemp("x"), form(rows, collective))
    assert [row.nbytes for row in run.rows] == [nbytes for nbytes, _ in rows]
    assert [row.seconds for row in run.rows] == pytest.approx([us / 1e6 for _, us in rows], rel=0.06)
    assert {row.collective for row in run.rows} == {collective}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(rows=SIZES_AND_TIMES, collective=st.sampled_from(COLLECTIVES))
def test_every_version_and_option_is_read(form: str, rows: list[tuple[int, float]], collective: str, tmp_path_factory):
    run = read(tmp_path_factory.mktemp("x"), form_table(form, rows, collective), collective)
    later = 1.1 if form == "in place" else 1.0
    assert [row.nbytes for row in run.rows] == [nbytes for nbytes, _ in rows]
    assert [row.seconds for row in run.rows] == pytest.approx([us * later / 1e6 for _, us in rows], rel=0.06)


@given(data=st.data())
def test_a_row_with_a_changed_digit_is_refused(data, tmp_path_factory):
    """Of size and count any digit; of a bandwidth any but the last, which rounding may have made."""
    rows, collective = [(1 << 20, 61.5), (1 << 30, 4523.1)], data.draw(st.sampled_from(COLLECTIVES))
    lines = table(rows, collective).splitlines()
    index = FIRST - 1 + data.draw(st.integers(0, 1))
    cells = lines[index].split()
    column = data.draw(st.sampled_from([0, 1, 6, 7, 10, 11]))
    digits = [place for place, one in enumerate(cells[column]) if one.isdigit()]
    place = data.draw(st.sampled_from(digits if column < 2 else digits[:-1]))
    other = data.draw(st.sampled_from([one for one in "0123456789" if one != cells[column][place]]))
    cells[column] = cells[column][:place] + other + cells[column][place + 1 :]
    lines[index] = "  ".join(cells)
    assert refusal(tmp_path_factory.mktemp("x"), "\n".join(lines)).startswith(f"line {index + 1}: ")


@given(data=st.data())
def test_a_changed_digit_of_json_is_refused(data, tmp_path_factory):
    collective = data.draw(st.sampled_from(COLLECTIVES))
    content = json.loads(as_json([(1 << 20, 61.5), (1 << 30, 4523.1)], collective))
    result = content["results"][data.draw(st.integers(0, 1))]
    key = data.draw(st.sampled_from(["size", "count", "alg_bw", "bus_bw"]))
    holder = result if key in result else result[data.draw(st.sampled_from(["out_of_place", "in_place"]))]
    step = 10.0 ** data.draw(st.integers(-5, 0)) if key not in result else 1
    holder[key] += step * data.draw(st.sampled_from([-1, 1]))
    assert "does not follow from" in refusal(tmp_path_factory.mktemp("x"), json.dumps(content))


def test_a_busbw_that_does_not_follow_is_refused_in_json_too(tmp_path: Path):
    content = json.loads(as_json(MEASURED))
    content["results"][1]["out_of_place"]["bus_bw"] *= 1.0001
    text = json.dumps(content, indent=1)
    line = next(k for k, one in enumerate(text.splitlines(), start=1) if f'"size": {1 << 20}' in one)
    assert refusal(tmp_path, text).startswith(f"line {line}: result 2: out_of_place: busbw ")


def test_an_older_output_names_neither_collective_nor_operation(tmp_path: Path):
    devices = [f"#   Rank  {rank} Pid  77 on node device  {rank} [0x0{rank}] Tesla V100-SXM2-16GB" for rank in range(4)]
    columns = "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error"
    row = " 4194304  262144  float  100.0  41.94  31.46  0e+00  99.0  42.37  31.78  0e+00"
    text = "\n".join(["# nThread 1 nGpus 4 minBytes 8", "# Using devices", *devices, "#", columns, row])
    assert [one.collective for one in read(tmp_path, text, "all_gather").rows] == ["all_gather"]
    assert "as float these are 1048576 bytes; for another collective give --collective" in refusal(tmp_path, text)
    others = row.replace("41.94", "31.46").replace("42.37", "31.78")  # of 2018: only what comes from others counts
    (found,) = read(tmp_path, text.replace(row, others), "all_gather").rows
    assert (found.algbw, found.busbw) == (pytest.approx(41.94, abs=0.01), 31.46)
    broadcast = row.replace("262144", "1048576")
    assert "for broadcast of 4 ranks it is 1 times" in refusal(tmp_path, text.replace(row, broadcast), "broadcast")
    assert "error 4e-05, where at most 3e-05 is rounding" in refusal(
        tmp_path, text.replace("0e+00", "4e-05"), "all_gather"
    )


def test_a_hypercube_counts_what_comes_from_others(tmp_path: Path):
    text = table([(1 << 20, 100.0)], "all_gather").replace("all_gather_perf", "hypercube_perf")
    assert "algbw 10.49 does not follow" in refusal(tmp_path, text)
    (row,) = read(tmp_path, text.replace("10.49", " 9.18")).rows
    assert (row.collective, row.algbw) == ("hypercube", pytest.approx(10.49, abs=0.01))


def test_a_log_among_the_table_and_the_prefixes_of_mpirun_do_no_harm(tmp_path: Path):
    lines = table(MEASURED).splitlines()
    log = "host00:77:77 [0] NCCL INFO Bootstrap : Using eth0"
    noisy = [log, "8 GPUs", *lines[:FIRST], log, "", *lines[FIRST:], "2 NCCL INFO comm destroyed", "", "done"]
    assert len(read(tmp_path, "\n".join(noisy)).rows) == 3
    assert len(read(tmp_path, "\n".join(f"[1,0]<stdout>:{line}" for line in lines)).rows) == 3


def test_several_collectives_may_follow_each_other(tmp_path: Path):
    both = read(tmp_path, table(MEASURED) + table(MEASURED[1:2], "all_gather"))
    assert [row.collective for row in both.rows] == ["all_reduce"] * 3 + ["all_gather"]


def with_row(text: str) -> str:
    return "\n".join([*LINES[: FIRST - 1], text, *LINES[FIRST:]])


GOOD = table_row(8, 34.66, "all_reduce", 8)
REFUSED = {
    "": "no row of nccl-tests; give the output of all_reduce_perf",
    "{": "not JSON: ",
    "{}": "'config' is missing; give what nccl-tests wrote with -J",
    GOOD: "line 1: a row before the line that names the columns",
    "\n".join(LINES[FIRST - 4 :]): "line 2: a table before the list of devices",
    with_row(GOOD[:50]): f"line {FIRST}: ",
    with_row(GOOD[: len(GOOD) // 2 + 12]): f"line {FIRST}: 7 cells; the columns are size count type redop root time",
    with_row(GOOD + " 7"): f"line {FIRST}: 14 cells; the columns are size count",
    with_row(GOOD + " host"): f"line {FIRST}: 14 cells; the columns are size count",
    with_row("-" + GOOD.strip()): f"line {FIRST}: size '-8'; give a whole number",
    with_row("x" + GOOD.strip()): f"line {FIRST}: 'x8 ",
    with_row("=====> step 3"): f"line {FIRST}: '=====> step 3' among the rows is neither a row, nor a comment (#)",
    with_row(GOOD.replace(" float ", " flota ")): f"line {FIRST}: type 'flota' is none of int8, uint8",
    with_row(GOOD.replace(" float ", "double ")): f"line {FIRST}: size 8 does not follow from count 2: as double these",
    with_row(GOOD.replace(" -1 ", "  8 ")): f"line {FIRST}: root '8'; give a rank from 0 to 7, or -1 for none",
    with_row(GOOD[:-1] + "5"): f"line {FIRST}: in place: 5 wrong values",
    with_row(GOOD[:-1] + "-"): f"line {FIRST}: in place: #wrong = '-'; give a number from 0 on or N/A",
    with_row(GOOD[:-16] + GOOD[-16:].replace("0.00", "3.00")): f"line {FIRST}: in place: busbw 3.00 does not follow",
    table(MEASURED).replace("values : 0 OK", "values : 2 FAILED"): "2 FAILED values out of bounds, by nccl-tests' own",
    table(MEASURED).replace("values : 0 OK", "values : 0 FAILED"): "0 FAILED values out of bounds",
    table(MEASURED).replace("  time ", "cputime "): "the column cputime says how long the launch took, not the",
    table(MEASURED).replace("Rank  3 Group  0", "Rank  3 Group  1"): "ranks of the groups 0, 1; give a run of one",
    table(MEASURED).replace("Rank  3 Group  0", "Rank  3 Grope  0"): "names no device; give '# Rank 0 Pid",
    table(MEASURED) + table(MEASURED, gpus=4): "ranks and hosts are others than those of the table before",
    with_row(GOOD.replace("34.66", "  nan")): f"line {FIRST}: time = 'nan'; give a number from 0 on",
    with_row(GOOD.replace("34.66", "-4.66")): f"line {FIRST}: time = '-4.66'",
    with_row(GOOD.replace("34.66", " 0.00")): f"line {FIRST}: time 0.00; a collective takes time",
    with_row(GOOD.replace("     0 ", "     3 ", 1)): f"line {FIRST}: 3 wrong values; what was measured is not the",
    with_row(GOOD.replace("0.00", "7.00", 1)): f"line {FIRST}: algbw 7.00 does not follow from 8 bytes in 34.66 us",
    with_row(GOOD.replace(" 8 ", " 8.5 ", 1)): f"line {FIRST}: size '8.5'",
    "\n".join(line for line in LINES if "Rank  3" not in line): "devices above is not whole: ranks 0, 1, 2, 4",
    table(MEASURED).replace("all_reduce_perf", "mine_perf"): "line 2: 'mine_perf' measures none of all_reduce",
    table(MEASURED).replace("busbw", "bus"): "and time, algbw and busbw, once or twice",
    table(MEASURED).replace("redop", "op"): "the columns are size count type op root time",
    as_json(MEASURED).replace('"time": 34.66', '"time": "nan"', 1): "time = 'nan' is not what nccl-tests writes",
    as_json(MEASURED).replace('"pid": 1000', '"pid": null', 1): "pid = None is not what nccl-tests writes",
    as_json(MEASURED).replace('"nwrong": 0.0', '"nwrong": 2.0', 1): "2.0 wrong values",
    as_json(MEASURED).replace('"okay": "true"', '"okay": "false"'): "0 (okay = 'false') values out of bounds",
    as_json(MEASURED).replace('"time": 34.66', '"cpu_time": 34.66', 1): "result 1: out_of_place: cpu_time says how",
    as_json(MEASURED).replace('"type": "float"', '"type": 4', 1): "type = 4 is not what nccl-tests writes",
    as_json(MEASURED).replace('"group": 0', '"group": 1', 1): "ranks of the groups 0, 1",
    as_json(MEASURED).replace('"ngpus": 1', '"ngpus": 0', 1): "are no ranks",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: REFUSED[text][:40])
def test_what_does_not_hold_together_is_refused(tmp_path: Path, text: str):
    assert REFUSED[text] in refusal(tmp_path, text)


def test_files_that_are_none_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_nccl_tests(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_nccl_tests(tmp_path / "binary")
    with pytest.raises(InputError, match="collective 'all' is not known"):
        read_nccl_tests(tmp_path / "none", "all")


@given(text=st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_no_text_does_worse_than_to_be_refused(text: str, tmp_path_factory):
    refusal(tmp_path_factory.mktemp("x"), text)


@given(data=st.data())
def test_no_mangled_output_does_worse_than_to_be_refused(data, tmp_path_factory):
    text = data.draw(st.sampled_from([table(MEASURED), as_json(MEASURED)]))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    path = tmp_path_factory.mktemp("x") / "run.txt"
    path.write_text(text[:start] + data.draw(st.text('0123456789.e+-#\n{}[],: "', max_size=5)) + text[stop:])
    try:
        run = read_nccl_tests(path)
    except InputError:
        return
    for row in run.rows:
        assert row.seconds is not None and row.seconds > 0
        assert row.busbw == pytest.approx((row.algbw or 0) * bus_factor(row.collective, run.ranks), abs=0.6, rel=0.06)
