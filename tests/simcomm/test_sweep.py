"""``simcomm.sweep`` equals ``simcomm.run`` bit for bit, and does shared work once."""

import os
from contextlib import closing
from dataclasses import replace
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
    """Predict the same values with ``simcomm.run``."""
    options = {"engine": "compiled", "record": False, "faults": faults}
    seconds = [
        simcomm.run(name, cluster, size, **options).elapsed
        for cluster in clusters
        for name in ALGORITHMS
        for size in SIZES
    ]
    return np.array(seconds).reshape(len(clusters), len(ALGORITHMS), len(SIZES))


def test_sweep_equals_run_bit_for_bit():
    results = simcomm.sweep(ALGORITHMS, CLUSTERS, np.array(SIZES))
    assert np.array_equal(results.seconds, one_by_one(CLUSTERS))
    rows = list(results.rows())
    assert [row.seconds for row in rows] == results.seconds.reshape(-1).tolist()
    assert (rows[5].cluster, rows[5].algorithm, rows[5].nbytes) == (STARS[0].title, "all_reduce/double_tree", 20)


def test_sweep_equals_run_under_faults():
    late = Faults(messages=Jitter("exponential", 1e-5), ranks=(RankFault(1, slowdown=2),), seed=5)
    clusters = [CLUSTERS[1], CLUSTERS[3]]
    assert np.array_equal(simcomm.sweep(ALGORITHMS, clusters, SIZES, faults=late).seconds, one_by_one(clusters, late))
    failing = Faults(ranks=(RankFault(1, fails_at=0.0),))
    assert np.isinf(simcomm.sweep("all_reduce/ring", STARS[0], [1 << 10], faults=failing).seconds).all()


def test_routes_are_shared_between_clusters_with_same_paths():
    tree, ring = CLUSTERS[5], simcomm.ring(8, "1 GB/s", "1 us")
    unlisted = replace(STARS[0], routing=lambda graph: simcomm.shortest(graph))
    listed = replace(unlisted, routing=simcomm.listed_routes([("h0", "s0", "h1")], unlisted.routing))
    assert same_paths(STARS[0], STARS[1]) and same_paths(CLUSTERS[7], CLUSTERS[8])
    for cluster, other in (
        (tree, CLUSTERS[6]),  # the trunk is wider relative to the other links
        (STARS[0], ring),
        (CLUSTERS[7], replace(CLUSTERS[8], routing=simcomm.ecmp(seed=4))),
        (STARS[0], STARS[1].on_first(7)),
        (unlisted, unlisted),
        (listed, listed),
    ):
        assert not same_paths(cluster, other)


def test_sweep_uses_joblib_backend():
    expected = simcomm.sweep(ALGORITHMS, CLUSTERS, SIZES).seconds
    with joblib.parallel_config("threading", n_jobs=2):
        assert np.array_equal(simcomm.sweep(ALGORITHMS, CLUSTERS, SIZES).seconds, expected)


def test_sweep_runs_on_dask():
    distributed = pytest.importorskip("distributed", reason="dask is not installed: pip install 'ringlab[dask]'")
    expected = simcomm.sweep(ALGORITHMS, STARS, SIZES).seconds
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
        joblib.parallel_config("dask", client=client),
    ):
        assert np.array_equal(simcomm.sweep(ALGORITHMS, STARS, SIZES).seconds, expected)


def workers() -> list[psutil.Process]:
    """Return the child processes, except joblib's resource tracker."""
    children = psutil.Process().children(recursive=True)
    alive = [process for process in children if process.status() != psutil.STATUS_ZOMBIE]
    return [process for process in alive if "resource_tracker" not in " ".join(process.cmdline())]


def test_long_tasks_use_all_cores_and_leave_no_process(monkeypatch: pytest.MonkeyPatch):
    before = workers()
    for name, value in (("LOOK_AFTER_S", 0.0), ("WORTH_PROCESSES_S", 0.0), ("cores", lambda: 2)):
        monkeypatch.setattr(simcomm.parallel, name, value)
    results = dict(simcomm.parallel.in_any_order(abs, range(-40, 0)))
    assert results == {number: 40 - number for number in range(40)}
    with closing(simcomm.parallel.in_any_order(abs, range(-40, 0))) as early:
        assert next(early)  # closing drops the other tasks
    assert workers() == before


def test_tasks_known_to_be_long_start_in_other_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simcomm.parallel, "cores", lambda: 2)
    results = dict(simcomm.parallel.in_any_order(eval, ["__import__('os').getpid()"] * 3, takes_long=True))
    assert len(results) == 3 and os.getpid() not in results.values()


@pytest.mark.parametrize(("progress", "is_drawn"), [(True, True), (False, False), (None, False)])
def test_progress_bar_counts_predictions(progress: bool | None, is_drawn: bool, capsys: pytest.CaptureFixture[str]):
    results = simcomm.sweep(ALGORITHMS[:2], STARS, SIZES, progress=progress)
    out, err = capsys.readouterr()
    assert not np.isnan(results.seconds).any() and out == ""
    assert ("predictions" in err and "24/24" in err) if is_drawn else err == ""


def test_interrupted_sweep_returns_finished_predictions():
    def interrupt(done: int, total: int) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    stopped = simcomm.sweep(ALGORITHMS, STARS, SIZES, progress=interrupt)
    assert stopped.interrupted and "interrupted" in repr(stopped)
    assert np.count_nonzero(~np.isnan(stopped.seconds)) == 24  # two programs, three stars, four sizes


def test_interrupt_before_the_first_prediction_is_raised(monkeypatch: pytest.MonkeyPatch):
    def interrupt(block: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("simcomm.sweeping.predict_block", interrupt)
    with pytest.raises(KeyboardInterrupt):
        simcomm.sweep(ALGORITHMS, STARS, SIZES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": "1 MiB"}, "sizes must be a list"),
        ({"sizes": []}, "at least one algorithm, one cluster and one size"),
        ({"sizes": [-1]}, "a size must be a non-negative integer"),
        ({"algorithms": ["all_reduce/star"]}, "unknown algorithm"),
        ({"clusters": [3]}, "cluster must be a cluster"),
        ({"progress": "bar"}, "progress must be True for a bar, or a function"),
    ],
)
def test_sweep_rejects_invalid_arguments(changes: dict, message: str):
    with pytest.raises(InputError, match=message):
        simcomm.sweep(**{"algorithms": ALGORITHMS, "clusters": STARS, "sizes": SIZES, **changes})
