"""Find the bottleneck of a run: on networks with known answers, and statistically on random ones."""

from dataclasses import replace
from random import Random

import pytest

import simcomm
from collectives import find_algorithm
from collectives.records.limits import find_limits
from collectives.records.link_loads import link_loads
from collectives.records.messages import Message
from collectives.records.trace import Trace, TracedLink
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.topologies import fat_tree, star, torus, two_level_tree
from simcomm.model.faults import Faults, LinkFault

SPEED = ("10 Gbit/s", "5 us")


def try_random(seed: int, quiet: bool) -> tuple[str, bool, bool]:
    """Degrade a link of a random network unless ``quiet``. Return the kind, if it costs 10 %, and if it is named."""
    random = Random(seed)
    cluster = random.choice(
        (
            lambda: star(random.choice((6, 8, 12, 16)), *SPEED),
            lambda: two_level_tree(4, random.choice((2, 4)), *SPEED, random.choice((1.0, 2.0))),
            lambda: torus([4, 4], *SPEED),
            lambda: fat_tree(4, *SPEED),
        )
    )()
    algorithm = random.choice(("ring", "double_tree", "halving_doubling", "torus", "naive", "hierarchical"))
    request = (f"all_reduce/{algorithm}", cluster, random.choice((1, 4, 8, 32)) << 20)
    link, share = random.choice(sorted(cluster.graph.edges)), random.choice((0.1, 0.2, 0.4, 0.55))
    usual = simcomm.run(*request, engine="compiled")
    faults = Faults(links=() if quiet else (LinkFault(link, share),))
    trace = simcomm.run(*request, engine="compiled", faults=faults)
    limits = find_limits(trace)
    named = [trace.links[number] for each in limits.cables[: limits.standing_out] for number in each.links]
    is_named = set(link) in [{each.src, each.dst} for each in named]
    return limits.kind, trace.elapsed / usual.elapsed >= 1.1, is_named


@pytest.mark.parametrize(("first", "number"), [(20_000, 60), pytest.param(30_000, 600, marks=pytest.mark.slow)])
def test_degraded_links_are_reported_with_few_false_alarms(first: int, number: int) -> None:
    quiet = [try_random(first + seed, quiet=True) for seed in range(0, number, 5)]
    faulty = [try_random(first + seed, quiet=False) for seed in range(number) if seed % 5]
    harmful = [is_named for _, is_harmful, is_named in faulty if is_harmful]
    assert len(harmful) >= number / 2, "too few harmful faults for a statement"
    assert harmful.count(False) <= 0.1 * len(harmful)
    assert sum(kind == "slow" for kind, *_ in quiet) <= 0.05 * len(quiet)


def test_slow_link_is_reported_with_its_bandwidth() -> None:
    cluster = two_level_tree(4, 8, *SPEED, 1.0)
    faults = Faults(links=(LinkFault(("h13", "s1"), 0.2),))
    limits = find_limits(simcomm.run("all_reduce/ring", cluster, 32 << 20, faults=faults))
    assert (limits.kind, limits.standing_out, limits.heading) == ("slow", 1, "rank 13 ↔ s1 is slow")
    assert limits.sentence == (
        "It behaves like a link of 2 Gbit/s, not 10 Gbit/s, in use all the time. "
        "All of the critical path crosses it: rank 12 to 13, and 13 to 14."
    )
    assert limits.cables[0].crossing > 0.9 * simcomm.run("all_reduce/ring", cluster, 32 << 20).elapsed


def test_healthy_star_is_bandwidth_bound() -> None:
    trace = simcomm.run("all_reduce/ring", star(8, *SPEED), 8 << 20)
    limits = find_limits(trace)
    assert (limits.kind, limits.heading, limits.standing_out) == ("none", "Bandwidth-bound", 0)
    assert limits.sentence.startswith("8 of 8 links are equally busy, at 99 %")
    measured = find_limits(replace(trace, elapsed=0.9 * trace.elapsed))  # faster than the bandwidth allows
    assert measured.cables[0].use > 1.05
    assert measured.sentence.startswith("8 of 8 links are equally busy, at 100 % of their capacity")


def test_narrow_trunk_is_reported_as_the_bottleneck() -> None:
    limits = find_limits(simcomm.run("all_reduce/ring", two_level_tree(2, 4, "1 Gbit/s", "5 us", 8.0), 8 << 20))
    assert limits.kind == "full" and ("is the bottleneck" in limits.heading or "are the bottleneck" in limits.heading)
    assert "where most have 1 Gbit/s" in limits.sentence


@pytest.mark.parametrize("nbytes", [4 << 10, 64 << 10, 1 << 20, 8 << 20])
def test_link_is_a_bottleneck_only_if_doubling_it_helps(nbytes: int) -> None:
    def run(bandwidth: str) -> Trace:
        links = [(f"h{rank}", "s0", "10 Gbit/s" if rank else bandwidth, "20 us") for rank in range(8)]
        return simcomm.run("all_reduce/naive", simcomm.from_links(links), nbytes)

    limits, gain = find_limits(run("10 Gbit/s")), run("10 Gbit/s").elapsed / run("20 Gbit/s").elapsed
    assert limits.kind in ("full", "latency", "none")
    assert limits.kind != "full" or gain > 1.04
    assert nbytes < 8 << 20 or limits.heading == "No single link is the bottleneck"


def test_latency_limits_tiny_messages() -> None:
    limits = find_limits(simcomm.run("all_reduce/ring", star(8, "100 Gbit/s", "50 us"), 64))
    assert limits.kind == "latency" and "wider links would not" in limits.sentence


def test_bottleneck_of_trace_without_links_is_unknown() -> None:
    trace = Trace("all_reduce/ring", "measured", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    assert find_limits(trace).kind == "unknown"


@pytest.mark.parametrize(
    ("bandwidth", "kind", "words"),
    [("100 Gbit/s", "computing", "of the time is computing, "), ("1 Gbit/s", "none", "Gradient sync takes ")],
)
def test_training_bottleneck_is_computing_or_gradient_sync(bandwidth: str, kind: str, words: str) -> None:
    training = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.02, 0.05, 0.01))
    trace = simcomm.train(training, star(4, bandwidth, "5 us"))
    limits = find_limits(trace)
    sync = trace.spans.select(trace.spans.named("sync"))
    share = (sync.end - sync.begin).sum() / 4 / trace.elapsed
    assert limits.kind == kind
    assert words in limits.sentence and f"sync takes {100 * share:.0f} %" in limits.sentence


def test_link_loads_follow_from_messages() -> None:
    """Two messages share a link of 1000 bytes/s for a second. Then one of them is alone on it."""
    link = TracedLink("a", "b", 1000.0, 0.0, 2000.0)
    messages = [Message(0, 1, 0, 0, 500, 0.0, 1.0, ("a", "b")), Message(0, 1, 1, 0, 1500, 0.0, 2.0, ("a", "b"))]
    loads = link_loads(Trace("two", "predicted", 2, 4.0, messages, links=[link], hosts=["a", "b"]))
    assert [column.tolist() for column in (loads.use, loads.busy, loads.most)] == [[0.5], [0.5], [2]]
    assert loads.peak.tolist() == [1.0]  # both together never exceed the link
    assert loads.mean_share(0, 0.0, 1.0) * loads.capacity[0] == pytest.approx(1250.0)  # 500 + 750 bytes/s
    assert loads.mean_share(0, 2.0, 4.0) == pytest.approx(0.0)
