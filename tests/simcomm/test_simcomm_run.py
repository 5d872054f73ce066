"""Simulated collectives: link traffic, contention, causality and argument checks."""

import numpy as np
import pytest

import simcomm
from collectives import InputError, library
from collectives.proof.verifier import verify


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_link_bytes_match_the_schedule(name: str, p: int):
    trace = simcomm.run(name, simcomm.star(p, "10 Gbit/s", "5 us"), 4 * 1003)
    schedule_share = verify(library()[name], p).sent_share
    uplinks = {link.src: link.nbytes for link in trace.links if link.src.startswith("h")}
    assert list(uplinks.values()) == trace.bytes_sent()
    assert max(trace.bytes_sent()) == pytest.approx(schedule_share * 4 * 1003, abs=4 * 2 * p)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nbytes": 8, "op": "avg"}, "op 'avg'.*sum, mean"),
        ({"nbytes": 8, "dtype": "float8"}, "dtype 'float8'"),
        ({"nbytes": 8, "dtype": "int32", "op": "mean"}, "floating-point dtype"),
        ({"buffers": [np.zeros(2), np.zeros(3)]}, "buffers.1. has 3 elements of float64; buffers.0. has 2 of"),
    ],
)
def test_run_rejects_invalid_arguments(asked, message):
    with pytest.raises(InputError, match=message):
        simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), **asked)


def test_this_machine_requires_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="ringlab calibrate --ranks 2"):
        simcomm.run("all_reduce/ring", simcomm.this_machine(2), 1024)
