"""Reject too large inputs before they are built, with the size, the limit and alternatives."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import simcomm
from collectives import find_algorithm
from collectives.budget import Gigabyte
from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.errors import InputError, TooLarge
from collectives.schedule.size_check import check_operations
from collectives.step import Step
from collectives.training.workload import ComputePhases
from collectives.transport import Transport
from ringlab.pictures.traces import check_traceable
from ringlab.scenario import load
from simcomm import schedules
from simcomm.compiled.kernel import arrays
from simcomm.compiled.planning import routes
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import alone_rates, find_routes
from simcomm.selection import choose


def counting(algorithm: Algorithm, counts: list[int]) -> Algorithm:
    """Return an algorithm whose programs append the number of operations of each step to ``counts``."""

    def function(*arguments, **options) -> Iterator[Step]:
        for step in algorithm.function(*arguments, **options):
            counts.append(len(step))
            yield step

    return replace(algorithm, function=function)


@pytest.mark.parametrize(
    ("name", "hosts"), [("all_to_all/pairwise", 60_000), ("all_to_all/direct", 10_000), ("all_to_all/bruck", 60_000)]
)
def test_too_many_messages_are_rejected_before_recording(name: str, hosts: int):
    cluster, counts = simcomm.star(hosts, "10 Gbit/s", "5 us"), list[int]()
    with pytest.raises(InputError, match=rf"{hosts}.*,\d\d\d,\d\d\d.* fewer ranks"):
        simcomm.run(counting(find_algorithm(name), counts), cluster, 1 << 20, record=False)
    assert 0 < sum(counts) < 10 * hosts * 2  # what a few ranks say


def test_predict_skips_rows_that_are_too_large_to_simulate(monkeypatch):
    monkeypatch.setattr(Gigabyte, "PAIRS", 5000)  # to be quick
    answer = load("star8", "cluster.hosts=101", 'collective.algorithms=["direct", "ring"]').predict()
    assert {collective.algorithm for collective in answer.collectives} == {"ring"} and len(answer.collectives) == 5
    assert re.search(r"Not simulated: all_reduce/direct, .* fewer ranks", "\n".join(answer.conclusions))


def test_auto_ignores_algorithms_too_large_to_simulate(monkeypatch):
    cluster = simcomm.two_level_tree(4, 26, "10 Gbit/s", "5 us")
    assert choose("all_reduce", cluster, 64).algorithm.name == "direct"
    monkeypatch.setattr(Gigabyte, "PAIRS", 5000)  # to be quick
    schedules.unverified_schedule.cache_clear()
    assert choose("all_reduce", cluster, 64).algorithm.name != "direct"
    with pytest.raises(TooLarge, match="direct, world size 104: 10,712 pairs"):
        choose("all_reduce", cluster, 64, among=[find_algorithm("all_reduce/direct")])


@pytest.mark.parametrize(("limit", "name"), [("PAIRS", "direct"), ("TABLED", "pairwise")])
def test_larger_memory_limit_allows_larger_simulations(limit: str, name: str, monkeypatch):
    algorithm, cluster = find_algorithm(f"all_to_all/{name}"), simcomm.star(257, "10 Gbit/s", "5 us")
    monkeypatch.setattr(Gigabyte, limit, 40_000)
    schedules.unverified_schedule.cache_clear()
    with pytest.raises(TooLarge, match=r'40,000\b.*\(RINGLAB_MEMORY="(2|4) GiB"\)') as refused:
        simcomm.run(algorithm, cluster, 1 << 20, record=False)
    monkeypatch.setenv("RINGLAB_MEMORY", re.findall(r'RINGLAB_MEMORY="([^"]*)"', str(refused.value))[0])
    assert simcomm.run(algorithm, cluster, 1 << 20, record=False).elapsed > 0
    for memory, message in (("much", "'much' is not a size"), ("0 B", "too small")):
        monkeypatch.setenv("RINGLAB_MEMORY", memory)
        schedules.unverified_schedule.cache_clear()
        with pytest.raises(InputError, match=f"RINGLAB_MEMORY.* {message}"):
            simcomm.run(algorithm, cluster, 1 << 20, record=False)


FAR, SIXTEEN = simcomm.ring(64, "1 GB/s", "1 us"), simcomm.star(16, "10 Gbit/s", "5 us")
PAIRWISE = find_algorithm("all_to_all/pairwise")
LIMITED: dict[str, tuple[str, int, Callable[[], object]]] = {  # by message: limit, its value, and the call
    "about 1,799,940,000 operations .*; the limit is 4,200,000; .* such as ring, or fewer": (
        "TABLED", Gigabyte.TABLED, lambda: check_operations(PAIRWISE, 30_000)
    ),
    "63 pairs of hosts have about 1,024 .* the limit is 1,000; .* such as ring, or fewer": (
        "HOPS", 1000, lambda: simcomm.run("reduce/naive", FAR, 4096, engine="compiled")
    ),
    "about 1,0\\d\\d links or more in total; the limit is 1,000": (
        "NAMED", 1000, lambda: simcomm.run("reduce/naive", FAR, 4096, engine="simpy")
    ),
    "126 routes of 126 messages have up to 26 links and share 2,358 pairs of links; the limit is 496": (
        "TOGETHER", 1000, lambda: simcomm.run("all_reduce/binomial", FAR, 4096, engine="compiled")
    ),
    "its 63 messages are too many for the simpy engine.*use the compiled engine": (
        "SIMPY", 62, lambda: simcomm.run("broadcast/binomial", FAR, 4096, engine="simpy")
    ),
    "routes of its 240 pairs of ranks .* the limit is 100": (
        "ROUTED", 100, lambda: simcomm.run("all_to_all/direct", SIXTEEN, 1 << 20, engine="compiled")
    ),
    "--trace: .*ring, .* 112 messages .* the limit is 100; .*; or remove --trace": (
        "RECORDED", 100, lambda: check_traceable(load("star8", 'collective.algorithms=["naive", "ring"]'))
    ),
    "its 112 messages .* the limit is 100; .*RINGLAB_MEMORY": ("RECORDED", 100, lambda: load("star8").trace("ring")),
}  # fmt: skip


@pytest.mark.parametrize("message", LIMITED)
def test_prediction_that_exceeds_a_memory_limit_is_rejected(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, most, call = LIMITED[message]
    monkeypatch.setattr(Gigabyte, limit, most)
    with pytest.raises(TooLarge, match=message):
        call()


def test_prediction_below_the_memory_limits_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in (("HOPS", 1000), ("SIMPY", 63), ("RECORDED", 100)):
        monkeypatch.setattr(Gigabyte, limit, most)
    assert simcomm.run("all_reduce/ring", FAR, 4096, engine="compiled", record=False).elapsed > 0
    assert simcomm.run("broadcast/binomial", FAR, 4096, engine="simpy", record=False).elapsed > 0
    assert len(load("star8").trace("naive").messages) == 14


def test_trace_of_overlapped_training_has_no_message_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    overlaps = 'training.gradient_sync={name = "ring", overlap = true}'
    scenario = replace(load("star8", "cluster.hosts=500", overlaps), collective=None)
    (training,), star = scenario.trainings, scenario.cluster
    with pytest.raises(TooLarge, match="too many for the simpy engine"):
        simcomm.train(replace(training, buckets=None, compute=ComputePhases(1.0, 1.0, 1.0)), star, engine="simpy")
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", 100)
    check_traceable(scenario)
    with pytest.raises(TooLarge, match="--trace: all_reduce/ring, world size 500: its 1,497,000 messages in all steps"):
        check_traceable(replace(scenario, trainings=(replace(training, buckets=None),)))


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_processing_in_batches_does_not_change_keys_and_routes(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.array([1 << 40, 3, 1 << 40, 0, 5, 3, 1 << 30], np.int64).repeat(30)
    tree = simcomm.two_level_tree(4, 4, "1 GB/s", "1 us", 4.0)
    doubling = find_algorithm("all_reduce/recursive_doubling")
    inputs = EngineInput(CollectiveCall(doubling, 1000), schedules.unverified_schedule(doubling, 16), tree, Transport())
    found_routes = find_routes(tree, Transport(), inputs.pairs)
    records = routes.make_link_records(found_routes, inputs.private)
    for module, name in ((arrays, "AT_ONCE"), (routes, "HOPS_AT_ONCE")):
        monkeypatch.setattr(module, name, at_once)
    assert all(map(np.array_equal, arrays.number_distinct(keys, 1 << 41), np.unique(keys, return_inverse=True)))
    pieces = find_routes(tree, Transport(), inputs.pairs)
    assert np.array_equal(pieces.delay, found_routes.delay)
    assert np.array_equal(alone_rates(pieces), alone_rates(found_routes))
    assert all(map(np.array_equal, routes.make_link_records(pieces, inputs.private), records))


@pytest.mark.parametrize("record", ["path.png", "film.gif", "player.html"])
def test_too_large_picture_is_rejected_at_once(record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", 300)
    for name in ("run", "train"):
        monkeypatch.setattr(simcomm, name, Mock(side_effect=AssertionError("it is simulated")))
    message = r"all_reduce/ring, world size 24: its 1,104 messages are too many .* the limit is 300; .* fewer"
    scenario, file = load("star8", "cluster.hosts=24"), tmp_path / record
    with pytest.raises(TooLarge, match=message):
        scenario.plot("path", file) if record == "path.png" else scenario.animate(file, "ring")
    of_training = message.replace("1,104 messages", "3,312 messages in all steps")
    with pytest.raises(TooLarge, match=of_training):
        replace(scenario, collective=None).plot("path", tmp_path / "path.png")
    assert not file.exists()
