"""What limits a run: the rule on networks whose answer is known, and as a study on random ones."""

from dataclasses import replace

import pytest
from limit_cases import Case, try_case

import simcomm
from collectives import find_algorithm
from collectives.records.limits import find_limits
from collectives.records.link_loads import link_loads
from collectives.records.messages import Message
from collectives.records.trace import Trace, TracedLink
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.topologies import two_level_tree
from simcomm.model.faults import Faults, LinkFault


def judge(cases: list[Case]) -> None:
    """Nine of ten cables whose fault costs a tenth or more are named; one quiet run in twenty may accuse one."""
    harmful = [case for case in cases if case.cable and case.is_harmful]
    quiet = [case for case in cases if not case.cable]
    missed = [case for case in harmful if not case.is_named]
    accused = [case for case in quiet if case.limits.kind == "slow"]
    assert len(harmful) >= len(cases) / 2, "too few faults that matter to say anything"
    assert len(missed) <= 0.1 * len(harmful), [(case.seed, case.what, case.limits.heading) for case in missed]
    assert len(accused) <= 0.05 * len(quiet), [(case.seed, case.what, case.limits.heading) for case in accused]


def test_slow_cables_are_named_and_good_ones_are_not() -> None:
    judge([try_case(20_000 + seed, quiet=seed % 5 == 0) for seed in range(60)])


@pytest.mark.slow
def test_slow_cables_are_named_on_many_networks() -> None:
    judge([try_case(30_000 + seed, quiet=seed % 4 == 0) for seed in range(600)])


def test_a_slow_cable_is_named_with_what_it_never_exceeds() -> None:
    cluster = two_level_tree(4, 8, "10 Gbit/s", "5 us", 1.0)
    faults = Faults(links=(LinkFault(("h13", "s1"), 0.2),))
    limits = find_limits(simcomm.run("all_reduce/ring", cluster, 32 << 20, faults=faults))
    assert (limits.kind, limits.standing_out) == ("slow", 1)
    assert limits.heading == "rank 13 ↔ s1 is slow"
    assert limits.sentence == (
        "It behaves like a link of 2 Gbit/s, not 10 Gbit/s, in use all the time. "
        "All the critical path, which decides the end, crosses it: rank 12 to 13, and 13 to 14."
    )
    assert limits.cables[0].crossing > 0.9 * simcomm.run("all_reduce/ring", cluster, 32 << 20).elapsed


def test_no_link_of_a_quiet_star_stands_out() -> None:
    limits = find_limits(simcomm.run("all_reduce/ring", simcomm.star(8, "10 Gbit/s", "5 us"), 8 << 20))
    assert (limits.kind, limits.heading, limits.standing_out) == ("none", "No link stands out", 0)
    assert limits.sentence.startswith("8 of 8 links are equally busy, 99 %")


def test_no_link_carries_more_than_it_could() -> None:
    """Messages of measured hops may take less than the bandwidth of the link that they cross says."""
    trace = simcomm.run("all_reduce/ring", simcomm.star(8, "10 Gbit/s", "5 us"), 8 << 20)
    limits = find_limits(replace(trace, elapsed=0.9 * trace.elapsed))
    assert limits.cables[0].use > 1.05
    assert limits.sentence.startswith("8 of 8 links are equally busy, 100 % of what they could carry")


def test_a_thin_trunk_sets_the_pace() -> None:
    limits = find_limits(simcomm.run("all_reduce/ring", two_level_tree(2, 4, "1 Gbit/s", "5 us", 8.0), 8 << 20))
    assert (limits.kind, limits.standing_out) == ("full", limits.standing_out)
    assert "is the bottleneck" in limits.heading or "are the bottleneck" in limits.heading
    assert "where most have 1 Gbit/s" in limits.sentence


@pytest.mark.parametrize("nbytes", [4 << 10, 64 << 10, 1 << 20, 8 << 20])
def test_only_a_link_whose_doubling_helps_sets_the_pace(nbytes: int) -> None:
    def run(bandwidth: str) -> Trace:
        links = [(f"h{rank}", "s0", "10 Gbit/s" if rank else bandwidth, "20 us") for rank in range(8)]
        return simcomm.run("all_reduce/naive", simcomm.from_links(links), nbytes)

    found, gain = find_limits(run("10 Gbit/s")), run("10 Gbit/s").elapsed / run("20 Gbit/s").elapsed
    assert found.kind in ("full", "latency", "none")
    assert found.kind != "full" or gain > 1.04
    assert nbytes < 8 << 20 or found.heading == "No single link is the bottleneck"


def test_latency_is_named_where_messages_are_tiny() -> None:
    limits = find_limits(simcomm.run("all_reduce/ring", simcomm.star(8, "100 Gbit/s", "50 us"), 64))
    assert limits.kind == "latency"
    assert "wider links would not" in limits.sentence


def test_a_measured_trace_has_no_links_to_name() -> None:
    trace = Trace("all_reduce/ring", "measured", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    assert find_limits(trace).kind == "unknown"


@pytest.mark.parametrize(
    ("bandwidth", "kind", "words"),
    [("100 Gbit/s", "computing", "of the time is computing, "), ("1 Gbit/s", "none", "Gradient sync takes ")],
)
def test_a_training_is_limited_by_computing_or_by_its_sync(bandwidth: str, kind: str, words: str) -> None:
    training = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.02, 0.05, 0.01))
    trace = simcomm.train(training, simcomm.star(4, bandwidth, "5 us"))
    found = find_limits(trace)
    sync = trace.spans.select(trace.spans.named("sync"))
    share = (sync.end - sync.begin).sum() / 4 / trace.elapsed
    assert (found.kind, words in found.sentence, f"sync takes {100 * share:.0f} %" in found.sentence) == (
        kind,
        True,
        True,
    )


def test_loads_of_a_link_follow_from_its_messages() -> None:
    """Two messages share a link of 1000 bytes a second: half each for a second, then one has it for itself."""
    link = TracedLink("a", "b", 1000.0, 0.0, 2000.0)
    messages = [Message(0, 1, 0, 0, 500, 0.0, 1.0, ("a", "b")), Message(0, 1, 1, 0, 1500, 0.0, 2.0, ("a", "b"))]
    trace = Trace("two", "predicted", 2, 4.0, messages, links=[link], hosts=["a", "b"])
    loads = link_loads(trace)
    assert loads.use.tolist() == [0.5]
    assert loads.busy.tolist() == [0.5]
    assert loads.most.tolist() == [2]
    assert loads.peak.tolist() == [1.0]  # both together: never more than the link has
    assert loads.mean_load(0, 0.0, 1.0) == pytest.approx(1250.0)  # 500 a second and, in the mean, 750
    assert loads.mean_load(0, 2.0, 4.0) == pytest.approx(0.0)
