"""Measurements: right results, meaningful times, and a trace of all messages."""

import time
from collections import Counter
from importlib import import_module
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import real_programs
import torch

import realcomm
import simcomm
from collectives.call import CollectiveCall, make_call
from collectives.catalogue import library
from collectives.errors import InputError
from collectives.records.trace import Trace, read_trace
from collectives.spec import FLOATING, ITEM_BYTES, OPS
from realcomm.execution.executor import COMBINE
from realcomm.launching.launcher import launch
from realcomm.measuring.collective_run import TimedCall, make_trace
from realcomm.measuring.rank_measurement import exact_input, exact_result, neutral_buffer

SHORT = {"warmup": 0, "repetitions": 3}


def run(algorithm: str, ranks: int, *args, **settings) -> Trace:
    return realcomm.run(algorithm, simcomm.this_machine(ranks), *args, **{**SHORT, **settings})


def sent(trace: Trace) -> Counter:
    return Counter((m.src, m.dst, m.step, m.chunk, m.nbytes) for m in trace.messages if m.nbytes)


@pytest.mark.parametrize(
    ("name", "ranks", "elements"),
    [
        ("all_reduce/ring", 3, 250),
        ("broadcast/naive", 2, 250),
        ("all_to_all/pairwise", 4, 248),
        ("reduce_scatter/ring", 4, 250),
        ("gather/binomial", 4, 250),
    ],
)
def test_measured_and_predicted_traces_have_equal_messages(name: str, ranks: int, elements: int):
    measured = run(name, ranks, 1001)
    predicted = simcomm.run(name, simcomm.star(ranks, "1 Gbit/s", "1 us"), 1001)
    assert sent(measured) == sent(predicted)
    assert measured.title == predicted.title == name
    assert (measured.kind, measured.hosts) == ("measured", [f"h{rank}" for rank in range(ranks)])
    assert measured.facts["nbytes"] == predicted.facts["nbytes"] == 4 * elements
    assert measured.facts["wrong"] == 0


def test_trace_times_lie_within_its_elapsed_time(tmp_path: Path):
    trace = run("all_reduce/ring", 3, 99 * 4, repetitions=7)
    assert trace.facts["repetitions"] == 7
    assert 0 < trace.facts["time_min_s"] <= trace.elapsed <= trace.facts["time_max_s"]
    assert len(trace.messages) == 3 * 4 and len(trace.spans) == 3 * 2
    for begin, end in [(m.begin, m.end) for m in trace.messages] + [(s.begin, s.end) for s in trace.spans]:
        assert 0 <= begin <= end <= trace.elapsed + 1e-9  # times of one clock, less its reading at the start
    trace.write(tmp_path / "ring.trace.json")
    assert read_trace(tmp_path / "ring.trace.json") == trace


@pytest.mark.parametrize(
    ("name", "settings", "results"),
    [
        ("all_reduce/ring", {"op": "mean"}, [2.0, 2.0, 2.0]),
        ("all_reduce/ring", {"op": "product"}, [6.0, 6.0, 6.0]),
        ("broadcast/naive", {"root": 2}, [3.0, 3.0, 3.0]),
        ("reduce/naive", {"root": 1}, [None, 6.0, None]),
    ],
)
def test_run_leaves_the_result_of_the_collective_in_the_buffers(name: str, settings: dict, results: list[float | None]):
    buffers = [np.full(5, rank + 1.0) for rank in range(3)]
    trace = run(name, 3, buffers=buffers, **settings)
    for buffer, value in zip(buffers, results, strict=True):
        assert value is None or buffer.tolist() == [value] * 5
    assert trace.facts["nbytes"] == 40
    if settings.get("op") == "mean":
        assert [span.step for span in trace.spans].count(4) == 3  # the division, after the last step


def test_empty_buffer_is_measured():
    trace = run("all_reduce/ring", 2, 3)
    assert (len(trace.messages), len(trace.spans), trace.facts["nbytes"]) == (0, 0, 0)


def test_default_repetitions_fill_a_second():
    heard = []
    trace = run("all_reduce/ring", 2, 64, repetitions=None, progress=lambda *news: heard.append(news))
    assert 5 <= trace.facts["repetitions"] <= 49
    assert all(rank == 0 and done < total for rank, done, total, _ in heard)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "nbytes must be a non-negative integer"),
        ({"nbytes": 8, "warmup": -1}, "warmup must be a non-negative integer, not -1"),
        ({"nbytes": 8, "repetitions": 0}, "repetitions must be a positive integer, not 0"),
        ({"nbytes": 8, "timeout": "60"}, "timeout must be a positive number of seconds, not '60'"),
        ({"buffers": [np.zeros(3)]}, "buffers must have one numpy array for each of the 2 ranks, not 1"),
        ({"buffers": [np.zeros((2, 2))] * 2}, "one dimension"),
    ],
)
def test_invalid_arguments_are_rejected_before_anything_starts(settings: dict, message: str, monkeypatch):
    never = lambda *args, **named: pytest.fail("a process was started")  # noqa: E731
    monkeypatch.setattr(import_module("realcomm.measuring.collective_run"), "launch", never)
    with pytest.raises(InputError, match=message):
        run("all_reduce/ring", 2, **settings)


@pytest.mark.parametrize(("dtype", "op"), [(d, op) for d in ITEM_BYTES for op in OPS if op != "mean" or d in FLOATING])
def test_measured_inputs_reduce_exactly_in_every_dtype(dtype: str, op: str):
    ranks, n, kind = 9, 2500, getattr(torch, dtype)
    call = CollectiveCall(library()["all_reduce/ring"], n, dtype, op)
    inputs = [exact_input(call, rank) for rank in range(ranks)]
    assert len({tuple(values.tolist()) for values in inputs}) > 2
    backwards = inputs[-1].clone()
    for values in reversed(inputs[:-1]):
        COMBINE[op](backwards, values)
    where, expected = exact_result(call, 0, ranks) or pytest.fail("nothing")
    assert where == slice(0, n)
    assert torch.equal(backwards / ranks if op == "mean" else backwards, expected)
    plain = {"sum": sum, "mean": sum, "min": min, "max": max}
    if op in plain and dtype != "uint8":  # where -1 is 255
        exactly = torch.tensor([plain[op](values) for values in zip(*(i.tolist() for i in inputs), strict=True)])
        assert torch.equal(exactly.to(kind) / ranks if op == "mean" else exactly.to(kind), expected)
    buffer, same = (neutral_buffer(call, torch.device("cpu")) for _ in range(2))
    COMBINE[op](buffer, same)
    assert torch.equal(buffer, same), "timed buffers never grow"


def test_wrong_elements_are_counted():
    measurement = TimedCall(CollectiveCall(library()["all_reduce/ring"], 100), 0, 1, None)
    assert min(launch(real_programs.measure_without_writing, 2, measurement)) > 10


def test_ranks_begin_together_when_some_arrive_late():
    ranks = launch(real_programs.arrive_late, 3)
    last_arrival = max(arrived for arrived, _, _ in ranks)
    assert all(begin > last_arrival and end - begin >= 0.01 for _, begin, end in ranks)


def test_measured_times_are_plausible_when_host_clocks_differ():
    call = make_call("all_reduce/ring", 3, 4096)
    begin = time.perf_counter()
    results = launch(real_programs.measure_by_unlike_clocks, 3, TimedCall(call, 1, 3, None), timeout=120)
    seconds = time.perf_counter() - begin
    measured, steps = zip(*results, strict=True)
    trace = make_trace(simcomm.this_machine(3), TimedCall(call, 1, 3, None), list(measured))
    assert 0 < trace.elapsed < seconds
    assert all(abs(message.begin) < seconds and abs(message.end) < seconds for message in trace.messages)
    begins = [step.begin for step in chain(*steps)]
    assert max(begins) - min(begins) < seconds
