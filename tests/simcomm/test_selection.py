"""Choosing the algorithm that is fastest according to the model."""

import pickle
from dataclasses import replace

import pytest

import simcomm
from collectives import InputError, Transport, find_algorithm, library, verify
from collectives.call import make_call, round_down
from collectives.costs.bounds import least_sent_share
from collectives.costs.brackets import ONE_AT_A_TIME
from collectives.declaration import Algorithm, auto
from collectives.errors import Undefined
from collectives.training.workload import Training
from ringlab.shared.workload import resolve_training
from simcomm.compiled.planning.engine_input import busiest_link_seconds
from simcomm.performance_models.estimator import Estimator
from simcomm.performance_models.message_simulator import star_model
from simcomm.performance_models.performance_model import performance_model
from simcomm.selection import choose, library_candidates, resolve_auto

TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)
STAR = simcomm.star(8, "10 Gbit/s", "5 us", TRANSPORT)


@pytest.mark.parametrize("nbytes", [1024, 64 << 10, 16 << 20])
@pytest.mark.parametrize("collective", ["broadcast", "all_reduce", "all_to_all", "scatter"])
def test_choose_returns_the_fastest_simulated_algorithm(collective: str, nbytes: int) -> None:
    choice = choose(collective, STAR, nbytes)
    simulated = {each.full_name: simcomm.run(each, STAR, nbytes).elapsed for each in library_candidates(collective)}
    assert choice.seconds == pytest.approx(min(simulated.values()), rel=1e-9)
    assert choice.seconds == pytest.approx(simulated[choice.algorithm.full_name], rel=1e-9)


def test_choose_picks_few_steps_or_bytes_by_buffer_size() -> None:
    others = [each for name, each in library().items() if each.spec.name == "all_reduce" and each.name != "direct"]
    assert choose("all_reduce", STAR, 64, among=others).algorithm.name == "recursive_doubling"
    large = choose("all_reduce", STAR, 64 << 20, among=others).algorithm
    assert verify(large, 8).sent_share == least_sent_share("all_reduce", 8)
    assert choose("all_reduce", STAR, 64).algorithm.name == "direct"  # the fewest steps and bytes on unshared links
    among = [find_algorithm(name, "all_to_all") for name in ("pairwise", "bruck")]
    assert choose("all_to_all", STAR, 64, among=among).algorithm.name == "bruck"
    assert choose("all_to_all", STAR, 64 << 20, among=among).algorithm.name == "pairwise"


@pytest.mark.parametrize("dimensions", [(3, 4), (3, 3, 3)])
def test_auto_uses_every_link_of_a_torus(dimensions: tuple[int, ...]) -> None:
    cluster = simcomm.torus(dimensions, "10 Gbit/s", "1 us")
    choice, p = choose("all_reduce", cluster, 64 << 20), cluster.world_size
    assert choice.algorithm.name == "torus"
    least = 2 * (p - 1) / p * (64 << 20) / 1.25e9 / (2 * len(dimensions))  # on all links, in both directions
    assert least <= choice.seconds <= 1.2 * least
    training = resolve_training(Training(auto("all_reduce"), model="my.py:tiny", parameters=1 << 24), cluster, None)
    assert training.gradient_sync is not None and training.gradient_sync.name == "torus"


def test_note_on_ring_on_a_3d_torus_names_a_better_algorithm() -> None:
    model = performance_model(simcomm.torus((3, 3, 3), "10 Gbit/s", "1 us"))
    torus = find_algorithm("torus", "all_reduce")
    (note,) = model.caveats([torus, find_algorithm("ring", "all_reduce"), auto("all_reduce")])
    assert 'write auto or {name = "torus", columns = 3, rows = 3}' in note
    assert model.caveats([torus.with_parameters(columns=3, rows=3)]) == ()


def test_choose_depends_on_the_trunk_bandwidth() -> None:
    links = [(f"h{i}", f"s{i // 4}", "10 Gbit/s", "1 us") for i in range(8)] + [("s0", "s1", "1 Gbit/s", "1 us")]
    trunk = simcomm.from_links(links)
    assert star_model(trunk, 8) is None
    assert choose("all_reduce", trunk, 64).algorithm.name == "direct"
    assert choose("all_reduce", trunk, 64 << 20).algorithm.name == "hierarchical"
    among = [find_algorithm(f"all_reduce/{name}") for name in ("ring", "halving_doubling", "hierarchical")]
    among[2] = among[2].with_parameters(gpus=4)
    assert choose("all_reduce", STAR, 64 << 20, among=among).algorithm.name == "halving_doubling"
    assert choose("all_reduce", trunk, 64 << 20, among=among).algorithm.name != "halving_doubling"


def test_star_formula_equals_the_simulation_of_equal_chunks() -> None:
    for algorithm in library().values():
        for nbytes in (1024, 4096):
            seconds = performance_model(STAR).estimator(make_call(algorithm, 8, nbytes)).seconds(algorithm)
            assert seconds == pytest.approx(simcomm.run(algorithm, STAR, nbytes).elapsed, rel=1e-9)


def test_choose_skips_algorithms_that_reject_the_world_size() -> None:
    four = find_algorithm("all_reduce/hierarchical").with_parameters(gpus=4)
    ring, six = find_algorithm("all_reduce/ring"), simcomm.star(6, "10 Gbit/s", "5 us")
    assert choose("all_reduce", six, 1024, among=[four, ring]).algorithm == ring
    with pytest.raises(InputError, match="all_reduce: no candidate supports 6 ranks"):
        choose("all_reduce", six, 1024, among=[four])
    with pytest.raises(InputError, match="unknown collective 'all'"):
        choose("all", six, 1024)


def test_resolved_auto_can_be_pickled() -> None:
    chosen = resolve_auto(make_call(auto("all_reduce"), 8, 64), STAR).algorithm
    assert chosen.label == "auto (direct)"
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert simcomm.run(chosen, STAR, 64).title == "all_reduce/auto (direct)"
    ring = make_call("all_reduce/ring", 8, 64)
    assert resolve_auto(ring, STAR) is ring


def test_auto_in_training_keeps_the_order_of_additions() -> None:
    ring = simcomm.ring(6, "10 Gbit/s", "100 us")
    training = Training(auto("all_reduce"), model="my.py:tiny", parameters=4)
    assert choose("all_reduce", ring, training.gradient_bytes).algorithm.label == "unchunked_ring"
    chosen = resolve_training(training, ring, None).gradient_sync
    assert chosen is not None and chosen.label.startswith("auto (") and chosen.name != "unchunked_ring"


def test_auto_is_rejected_as_an_algorithm() -> None:
    for name in ("all_reduce/auto", "auto"):
        with pytest.raises(InputError, match=r"auto is not an algorithm: .* pass simcomm.selection"):
            find_algorithm(name, "all_reduce")
    with pytest.raises(InputError, match="'auto' is not an algorithm"):
        auto("all_reduce").channels(0, 2)


ON_STAR = [algorithm for algorithm in library().values() if algorithm.name != "gloo"]


@pytest.mark.parametrize("algorithm", ON_STAR, ids=lambda algorithm: algorithm.full_name)
def test_simulated_time_lies_between_its_lower_and_upper_bound(algorithm: Algorithm) -> None:
    for p in (2, 3, 4, 8, 12):
        for elements, op in ((p * 4 + 1, "mean"), (1001, "sum"), (100_003, "sum")):
            op = op if algorithm.spec.reduces else None
            try:
                call = make_call(algorithm, p, 4 * round_down(algorithm, elements, p), op=op)
                estimator = performance_model(simcomm.star(p, "10 Gbit/s", "5 us", TRANSPORT)).estimator(call)
                least, most = estimator.bracket(algorithm)
            except Undefined:
                continue
            seconds = simcomm.run(call, estimator.cluster, record=False).elapsed
            assert least <= seconds * (1 + 1e-12) and most >= seconds * (1 - 1e-12)
            if algorithm.full_name in ONE_AT_A_TIME and elements == 100_003:
                assert most < least * 1.05
            assert busiest_link_seconds(estimator._input(algorithm)) <= seconds * (1 + 1e-12)


def test_lower_bounds_hold_on_ring_and_tree_networks() -> None:
    ring = simcomm.from_links([(f"h{i}", f"h{(i + 1) % 9}", f"{1 + i} Gbit/s", "3 us") for i in range(9)])
    tree = simcomm.two_level_tree(3, 4, "10 Gbit/s", "5 us", oversubscription=4)
    shared = replace(tree, hosts=(*tree.hosts, *tree.hosts[:3]))
    algorithms = [each for each in ON_STAR if each.spec.name in ("all_reduce", "all_to_all")]
    for cluster in (ring, tree, shared):
        for each in algorithms:
            call = make_call(each, cluster.world_size, 4 * round_down(each, 5003, cluster.world_size))
            try:
                estimator = performance_model(cluster).estimator(call)
                least = max(estimator.bracket(each).least, estimator.link_load_bound(each))
            except Undefined:
                continue
            assert least <= estimator.simulate(each) * (1 + 1e-12)


TREE = simcomm.two_level_tree(4, 16, "10 Gbit/s", "5 us", oversubscription=4)


@pytest.mark.parametrize("cluster", [simcomm.star(64, "10 Gbit/s", "5 us", TRANSPORT), TREE], ids=["star", "tree"])
def test_auto_simulates_at_most_six_candidates(cluster: simcomm.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, simulate = list[str](), Estimator.simulate

    def counted(self: Estimator, algorithm: Algorithm) -> float:
        simulated.append(algorithm.label)
        return simulate(self, algorithm)

    monkeypatch.setattr(Estimator, "simulate", counted)
    call = make_call(auto("all_reduce"), cluster.world_size, 4 * 1_181_643, op="mean")
    chosen = resolve_auto(call, cluster).algorithm
    assert len(simulated) <= 6
    estimator = performance_model(cluster).estimator(call)
    assert replace(chosen, by_model=False) == min(library_candidates("all_reduce"), key=estimator.simulate)
