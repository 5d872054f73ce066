"""``simcomm.sweep``: the answers of ``simcomm.run`` to the last bit, with what predictions share worked out once."""

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import psutil
import pytest

import simcomm
import simcomm.parallel
from collectives import InputError, Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import same_paths
from simcomm.model.faults import NO_FAULTS, Faults, RankFault
from simcomm.model.jitter import Jitter

REDUCING = Transport("reducing", overhead=3e-6, goodput=0.9, gamma=1e-10)
STARS = [simcomm.star(8, bandwidth, "5 us") for bandwidth in ("1 Gbit/s", "10 Gbit/s", "100 Gbit/s")]
CLUSTERS = [
    *STARS,
    simcomm.star(8, "10 Gbit/s", "1 us", transport=REDUCING),
    replace(STARS[1], sharing="fifo"),
    simcomm.two_level_tree(2, 4, "10 Gbit/s", "2 us", oversubscription=4),
    simcomm.two_level_tree(2, 4, "10 Gbit/s", "3 us", oversubscription=3),
    replace(simcomm.fat_tree(4, "10 Gbit/s", "1 us"), routing=simcomm.ecmp(seed=3)),
    replace(simcomm.fat_tree(4, "25 Gbit/s", "1 us"), routing=simcomm.ecmp(seed=3)),
]
ALGORITHMS = ["all_reduce/ring", "all_reduce/double_tree", "all_reduce/halving_doubling", "all_reduce/naive"]
SIZES = [0, 20, 1000, 1 << 20]


def one_by_one(clusters: list[Cluster], faults: Faults = NO_FAULTS) -> np.ndarray:
    """The same by ``simcomm.run``."""
    ask = {"engine": "compiled", "record": False, "faults": faults}
    found = [
        simcomm.run(name, cluster, size, **ask).elapsed for cluster in clusters for name in ALGORITHMS for size in SIZES
    ]
    return np.array(found).reshape(len(clusters), len(ALGORITHMS), len(SIZES))


def test_the_answers_are_those_of_run_to_the_last_bit():
    found = simcomm.sweep(ALGORITHMS, CLUSTERS, np.array(SIZES))
    assert np.array_equal(found.seconds, one_by_one(CLUSTERS))
    rows = list(found.rows())
    assert [row.seconds for row in rows] == found.seconds.reshape(-1).tolist()
    assert (rows[5].cluster, rows[5].algorithm, rows[5].nbytes) == (STARS[0].title, "all_reduce/double_tree", 20)


def test_in_trouble_too():
    late = Faults(messages=Jitter("exponential", 1e-5), ranks=(RankFault(1, slowdown=2),), seed=5)
    chosen = [CLUSTERS[1], CLUSTERS[3]]
    assert np.array_equal(simcomm.sweep(ALGORITHMS, chosen, SIZES, faults=late).seconds, one_by_one(chosen, late))
    failing = Faults(ranks=(RankFault(1, fails_at=0.0),))
    assert np.isinf(simcomm.sweep("all_reduce/ring", STARS[0], [1 << 10], faults=failing).seconds).all()


def test_a_program_is_proved_and_routed_once_for_all_speeds_and_sizes(monkeypatch: pytest.MonkeyPatch):
    from collectives.proof import verifier
    from simcomm import schedules

    asked = {"routers": 0, "proofs": 0}
    router, verify = Cluster.router, verifier.verify

    def count(name: str, call: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            asked[name] += 1
            return call(*arguments)

        return counted

    for cached in (schedules.compact_schedule, schedules._proved_schedule):
        cached.cache_clear()
    monkeypatch.setattr(Cluster, "router", count("routers", router))
    monkeypatch.setattr(schedules, "verify", count("proofs", verify))
    simcomm.sweep(ALGORITHMS, STARS, SIZES[2:])
    assert asked == {"routers": len(ALGORITHMS), "proofs": len(ALGORITHMS)}


def test_routes_are_shared_only_where_they_are_the_same():
    tree, ring = CLUSTERS[5], simcomm.ring(8, "1 GB/s", "1 us")
    assert same_paths(STARS[0], STARS[1]) and same_paths(CLUSTERS[7], CLUSTERS[8])
    assert not same_paths(tree, CLUSTERS[6])  # the trunk is wider, beside the other links
    assert not same_paths(STARS[0], ring)
    assert not same_paths(CLUSTERS[7], replace(CLUSTERS[8], routing=simcomm.ecmp(seed=4)))
    assert not same_paths(STARS[0], STARS[1].on_first(7))
    own = replace(STARS[0], routing=lambda graph: simcomm.shortest(graph))
    assert not same_paths(own, own)
    listed = [("h0", "s0", "h1")]
    assert not same_paths(*(replace(own, routing=simcomm.listed_routes(listed, own.routing)),) * 2)


def test_sweep_uses_the_backend_that_joblib_names():
    expected = simcomm.sweep(ALGORITHMS, CLUSTERS, SIZES).seconds
    with joblib.parallel_config("threading", n_jobs=2):
        assert np.array_equal(simcomm.sweep(ALGORITHMS, CLUSTERS, SIZES).seconds, expected)


def workers() -> list[psutil.Process]:
    """The processes of this one, without those that clean up after it."""
    found = psutil.Process().children(recursive=True)
    alive = [process for process in found if process.status() != psutil.STATUS_ZOMBIE]
    return [process for process in alive if "resource_tracker" not in " ".join(process.cmdline())]


def test_all_cores_do_what_takes_long_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch):
    before = workers()
    monkeypatch.setattr(simcomm.parallel, "LOOK_AFTER_S", 0.0)
    monkeypatch.setattr(simcomm.parallel, "WORTH_PROCESSES_S", 0.0)
    monkeypatch.setattr(simcomm.parallel, "cores", lambda: 2)
    found = dict(simcomm.parallel.in_any_order(abs, range(-40, 0)))
    assert found == {number: 40 - number for number in range(40)}
    with closing(simcomm.parallel.in_any_order(abs, range(-40, 0))) as early:
        assert next(early)  # what is not done is given up
    assert workers() == before


def test_what_is_known_to_take_long_is_done_by_other_processes_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simcomm.parallel, "cores", lambda: 2)
    found = dict(simcomm.parallel.in_any_order(eval, ["__import__('os').getpid()"] * 3, takes_long=True))
    assert len(found) == 3 and os.getpid() not in found.values()


def test_dask_does_it_on_two_workers():
    distributed = pytest.importorskip("distributed", reason="dask is not installed: pip install 'ringlab[dask]'")
    expected = simcomm.sweep(ALGORITHMS, STARS, SIZES).seconds
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
        joblib.parallel_config("dask", client=client),
    ):
        assert np.array_equal(simcomm.sweep(ALGORITHMS, STARS, SIZES).seconds, expected)


def interrupt_at(most: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done >= most:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(("progress", "drawn"), [(True, True), (False, False), (None, False)])
def test_a_bar_is_drawn_on_request_and_begins_at_what_is_known(
    progress: bool | None, drawn: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ask = {"algorithms": ALGORITHMS[:2], "clusters": STARS, "kept": tmp_path / "kept.jsonl"}
    simcomm.sweep(**ask, sizes=SIZES[:2])
    assert capsys.readouterr() == ("", "")
    found = simcomm.sweep(**ask, sizes=SIZES, progress=progress)
    out, err = capsys.readouterr()
    assert not np.isnan(found.seconds).any() and out == ""
    assert ("predictions" in err and "24/24" in err) if drawn else err == ""


def test_what_is_done_is_kept_and_not_done_again(tmp_path: Path):
    file, news = tmp_path / "kept.jsonl", list[tuple[int, int]]()
    ask = {"algorithms": ALGORITHMS, "clusters": STARS, "sizes": SIZES, "kept": file}
    stopped = simcomm.sweep(**ask, progress=interrupt_at(20))
    lines = file.read_text().splitlines()
    assert stopped.interrupted and "interrupted" in repr(stopped)
    assert len(lines) == np.count_nonzero(~np.isnan(stopped.seconds)) == 24  # two programs on three stars at four sizes
    file.write_text(file.read_text() + '{"key": "cut')
    whole = simcomm.sweep(**ask, progress=lambda *now: news.append(now))
    assert news[0] == (36, 48) and news[-1] == (48, 48)
    assert np.array_equal(whole.seconds, one_by_one(STARS))
    assert len(file.read_text().splitlines()) == 48 and file.read_text().startswith("\n".join(lines))
    again = simcomm.sweep(**ask, progress=lambda *now: pytest.fail("predicted again"))
    assert np.array_equal(again.seconds, whole.seconds)
    assert {json.loads(line)["cluster"] for line in lines} == {star.title for star in STARS}
    slower = [simcomm.star(8, "1 Gbit/s", "6 us")]
    assert not np.array_equal(simcomm.sweep(**{**ask, "clusters": slower}).seconds, whole.seconds[:1])


def test_an_interrupt_before_the_first_prediction_is_one(monkeypatch: pytest.MonkeyPatch):
    def interrupt(block: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("simcomm.sweeping.predict_block", interrupt)
    with pytest.raises(KeyboardInterrupt):
        simcomm.sweep(ALGORITHMS, STARS, SIZES)


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"key": 3, "seconds": 1}', '{"key": "a"}', '{"key":"a","seconds":-1}']
)
def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path, line: str):
    file = tmp_path / "kept.jsonl"
    file.write_text(f'{{"key": "a", "seconds": 1.5}}\n{line}\n')
    with pytest.raises(InputError, match=r"kept.jsonl, line 2: .* is no prediction of a sweep"):
        simcomm.sweep(ALGORITHMS, STARS, SIZES, kept=file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sizes": "1 MiB"}, "sizes is '1 MiB'; give a list"),
        ({"sizes": []}, "at least one algorithm, one cluster and one size"),
        ({"sizes": [-1]}, "a size is -1"),
        ({"algorithms": ["all_reduce/star"]}, "no algorithm is called"),
        ({"clusters": [3]}, "cluster is 3"),
        ({"progress": "bar"}, "progress is 'bar'; give True for a bar, or a function"),
    ],
)
def test_what_cannot_be_swept_over_is_refused(changed: dict, message: str):
    with pytest.raises(InputError, match=message):
        simcomm.sweep(**{"algorithms": ALGORITHMS, "clusters": STARS, "sizes": SIZES, **changed})
