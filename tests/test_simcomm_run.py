"""Collectives in virtual time: closed forms, data, contention, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import InputError, ProgramError, Transport, library
from collectives.cost import CLOSED_FORMS
from collectives.verify import verify

TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)


@pytest.mark.parametrize("name", CLOSED_FORMS)
@given(p=st.integers(1, 12), kilobytes=st.integers(1, 10_000), latency=st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_simulated_times_equal_the_closed_forms(name: str, p: int, kilobytes: int, latency: int):
    cluster = simcomm.star(p, "10 Gbit/s", f"{latency} us", TRANSPORT)
    nbytes = kilobytes * p * 4
    alpha, beta = 3e-6 + 2 * latency * 1e-6, 1 / (1.25e9 * 0.9)
    elapsed = simcomm.run(name, cluster, nbytes).elapsed
    assert elapsed == pytest.approx(CLOSED_FORMS[name](p, nbytes, alpha, beta, 1e-10), rel=1e-9)


def expected(collective: str, op: str, data: list[np.ndarray], root: int, rank: int) -> np.ndarray | None:
    """What the rank holds afterwards; None where it is undefined."""
    if collective == "broadcast":
        return data[root]
    if collective == "reduce" and rank != root:
        return None
    reduced = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max, "product": np.prod}[op]
    return reduced(np.stack(data), axis=0).astype(data[0].dtype)


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max", "product"])
@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_data_comes_out_right(name: str, op: str, p: int):
    collective = name.partition("/")[0]
    for n in (0, 1, 2, 3, p - 1, p, p + 1, 103):
        for root in {0, p - 1} if library()[name].spec.rooted else {0}:
            rng = np.random.default_rng([p, n, root])
            data = [rng.integers(1, 4, n).astype(np.float64) * p for _ in range(p)]
            held = [array.copy() for array in data]
            simcomm.run(name, simcomm.star(p, "1 GB/s", "1 us"), op=op, buffers=held, root=root)
            for rank, array in enumerate(held):
                wanted = expected(collective, op, data, root, rank)
                assert wanted is None or np.array_equal(array, wanted), (n, root, rank)


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_bytes_on_the_links_are_those_of_the_schedule(name: str, p: int):
    trace = simcomm.run(name, simcomm.star(p, "10 Gbit/s", "5 us"), 4 * 1003)
    schedule_share = verify(library()[name], p).sent_share
    uplinks = {link.src: link.nbytes for link in trace.links if link.src.startswith("h")}
    assert list(uplinks.values()) == trace.bytes_sent()
    assert max(trace.bytes_sent()) == pytest.approx(schedule_share * 4 * 1003, abs=4 * 2 * p)


def test_a_thin_trunk_slows_the_ring_down_by_what_crosses_it():
    links = [(f"h{i}", f"s{i // 4}", "10 Gbit/s", "0 us") for i in range(8)] + [("s0", "s1", "1 Gbit/s", "0 us")]
    wide = simcomm.run("all_reduce/ring", simcomm.star(8, "10 Gbit/s", "0 us"), 8 << 20).elapsed
    thin = simcomm.run("all_reduce/ring", simcomm.from_links(links), 8 << 20).elapsed
    assert thin == pytest.approx(10 * wide, rel=1e-9)  # one message at a time in each direction of the trunk


def test_the_same_run_twice_gives_the_same_trace():
    cluster = simcomm.star(5, "10 Gbit/s", "5 us", TRANSPORT)
    assert simcomm.run("all_reduce/ring", cluster, 12345) == simcomm.run("all_reduce/ring", cluster, 12345)


def test_messages_are_causal_and_routed():
    trace = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), 1 << 20)
    assert len(trace.messages) == 4 * 6
    for message in trace.messages:
        assert 0 <= message.begin < message.end <= trace.elapsed
        assert message.route == (f"h{message.src}", "s0", f"h{message.dst}")


def test_a_wrong_program_is_refused_and_never_hangs(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from collectives import algorithm, recv, send\n"
        "@algorithm('all_reduce')\n"
        "def stuck(rank, world_size):\n"
        "    yield recv((rank - 1) % world_size, 0)\n"
        "    yield send((rank + 1) % world_size, 0)\n"
    )
    with pytest.raises(ProgramError, match=r"deadlock.*rank 0 in step 0 waits for rank 2.*rank 2 in step 0"):
        simcomm.run(f"{file}:stuck", simcomm.star(3, "10 Gbit/s", "5 us"), 1024)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"nbytes": -1}, "nbytes is -1"),
        ({"nbytes": None}, "nbytes is None"),
        ({"nbytes": 8, "op": "avg"}, "op 'avg'.*sum, mean"),
        ({"nbytes": 8, "dtype": "float8"}, "dtype 'float8'"),
        ({"nbytes": 8, "dtype": "int32", "op": "mean"}, "floating dtype"),
        ({"buffers": [np.zeros(2)]}, "1 of them; 2 of one length"),
        ({"buffers": [np.zeros(2), np.zeros(3)]}, "one length and type"),
    ],
)
def test_what_cannot_be_simulated_is_refused(asked, message):
    with pytest.raises(InputError, match=message):
        simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), **asked)


def test_a_root_that_is_no_rank_is_refused():
    with pytest.raises(InputError, match=r"root 2 .*0\.\.1"):
        simcomm.run("broadcast/naive", simcomm.star(2, "10 Gbit/s", "5 us"), 8, root=2)


def test_this_machine_needs_a_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="ringlab calibrate --ranks 2"):
        simcomm.run("all_reduce/ring", simcomm.this_machine(2), 1024)
