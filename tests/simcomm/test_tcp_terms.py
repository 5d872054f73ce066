"""What each term of TCP does, in closed form, and how near to measured times all of them together come."""

import json
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import compiled_cases as cases
import numpy as np
import pytest

import simcomm
from benchmarks.accuracy.here import pair_before
from collectives import Algorithm, InputError, TcpTerms, Transport, find_algorithm
from collectives.call import CollectiveCall
from collectives.errors import TooLarge
from collectives.proof.verifier import verify
from collectives.schedule.build import build_schedule
from collectives.spec import find_spec
from collectives.step import Program, recv, recv_reduce, send
from collectives.training.workload import ComputePhases, Training
from ringlab.emulated import hosts_bandwidth, without_latencies
from scenarios import load
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.pair_fit import fit_pair
from simcomm.compiled.engine import by_segments
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.tcp.records import MESSAGE_HEADER
from simcomm.compiled.traces import trace_messages
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter
from simcomm.performance_models.network_model import TcpSimulator
from simcomm.performance_models.options import SimulationOptions

OFF = TcpTerms(pipeline=False, receive_ready=False, send_buffer=0.0, header=0.0, acknowledgement=0.0)
RATE = 1e6  # bytes/s of every link
NBYTES = 1_448_000 - int(MESSAGE_HEADER)  # 1000 full packets with gloo's header


def star(hosts: int, terms: TcpTerms, overhead: float = 0.0, latency: str = "0 us") -> Cluster:
    return simcomm.star(hosts, "1 MB/s", latency, Transport("gloo-tcp", overhead, tcp=terms))


def one_program(program: Any, chunks: int = 1) -> Algorithm:
    return Algorithm(find_spec("all_reduce"), "made up", program, chunks)


def times(algorithm: Algorithm, cluster: Cluster, nbytes: int = NBYTES) -> dict[tuple[int, int, int], float]:
    """When each message ends, by its ranks and step."""
    schedule, transport = build_schedule(algorithm, cluster.world_size), cluster.transport
    assert transport is not None
    inputs = EngineInput(CollectiveCall(algorithm, nbytes // 4), schedule, cluster, transport)
    messages = trace_messages(inputs, by_segments(inputs, messages=True))
    return {(message.src, message.dst, message.step): message.end for message in messages}


def from_0_to(*receivers: int) -> Any:
    """Let rank 0 send the buffer to some ranks in one step."""

    def program(rank: int, world_size: int) -> Program:
        if rank == 0:
            yield tuple(send(peer, 0) for peer in receivers)
        elif rank in receivers:
            yield recv(0, 0)

    return one_program(program)


def test_without_terms_a_message_takes_its_overhead_and_its_bytes():
    found = times(from_0_to(1), star(2, OFF, overhead=0.25))
    assert found[0, 1, 0] == pytest.approx(0.25 + 1.448)


def test_headers_are_counted_as_a_shaper_counts_them():
    assert times(from_0_to(1), star(2, replace(OFF, header=66.0)))[0, 1, 0] == pytest.approx(1.514)


def test_after_idle_a_link_lets_its_burst_through_at_once():
    assert times(from_0_to(1), star(2, replace(OFF, burst=4096.0)))[0, 1, 0] == pytest.approx(1.448 - 4096 / RATE)


def test_a_notice_costs_its_latency_and_its_bytes():
    found = times(from_0_to(1), star(2, replace(OFF, receive_ready=True, receive_ready_overhead=0.5), latency="100 ms"))
    assert found[0, 1, 0] == pytest.approx(0.5 + 0.2 + MESSAGE_HEADER / RATE + 0.2 + 1.448)


def test_a_notice_waits_behind_data_on_its_connection():
    """Rank 1 is ready to receive after it has begun to send: rank 0 hears of it when all that is there."""

    def program(rank: int, world_size: int) -> Program:
        if rank == 0:
            yield recv(1, 0)
        if rank == 1:
            yield send(0, 0)
        if rank == 1:
            yield recv(0, 0)
        if rank == 0:
            yield send(1, 0)

    early = times(one_program(program), star(2, replace(OFF, receive_ready=True, send_buffer=1e9)))
    assert early[0, 1, 1] - early[1, 0, 0] == pytest.approx(1.448 + MESSAGE_HEADER / RATE)
    assert times(one_program(program), star(2, replace(OFF, send_buffer=1e9)))[0, 1, 1] == pytest.approx(2 * 1.448)


def test_messages_within_the_window_leave_one_after_the_other():
    found = times(from_0_to(1, 2, 3), star(4, OFF))
    assert [found[0, peer, 0] for peer in (1, 2, 3)] == pytest.approx([1.448, 2 * 1.448, 3 * 1.448])


def test_messages_much_larger_than_the_window_share_the_link():
    found = times(from_0_to(1, 2, 3), star(4, replace(OFF, window=30_000.0)))
    assert [found[0, peer, 0] for peer in (1, 2, 3)] == pytest.approx([3 * 1.448] * 3, rel=0.03)


def test_of_a_connection_a_piece_at_a_time_is_on_the_first_link():
    """Two messages share the link by pieces. One alone goes on as its pieces leave, whatever the link's latency."""
    found = times(from_0_to(1, 2), star(3, replace(OFF, piece=30_000.0)))
    assert [found[0, peer, 0] for peer in (1, 2)] == pytest.approx([2 * 1.448] * 2, rel=0.02)
    alone = times(from_0_to(1), star(2, replace(OFF, piece=16 * 1448.0), latency="1 s"))
    assert alone[0, 1, 0] == pytest.approx(2 + 1.448)  # as fast as without, where acknowledgements take 2 s more
    small = times(from_0_to(1), star(2, replace(OFF, piece=1.0)))
    assert small[0, 1, 0] == pytest.approx(1.448)  # one segment may always be on the link
    host = star(2, OFF).hosts[0]
    inside = [
        times(from_0_to(1), replace(star(2, terms), hosts=(host, host))) for terms in (OFF, replace(OFF, piece=1.0))
    ]
    assert inside[0] == inside[1]  # between ranks of one host there is no link to leave


def test_a_window_is_sent_once_a_round_trip():
    """Ten packets of window and a round trip of 4 s take 100 round trips, less the way back of the last."""
    window = 16 * 1448.0
    found = times(from_0_to(1), star(2, replace(OFF, window=window), latency="1 s"))
    sent_once = 8 * 1448 / RATE
    assert found[0, 1, 0] == pytest.approx(62 * (4 + sent_once) + 2 + sent_once, rel=1e-3)


def test_a_send_returns_from_the_send_buffer_and_the_next_one_follows_it():
    """With a buffer for all, rank 0 comes to its second step at once, and both messages are under way."""

    def program(rank: int, world_size: int) -> Program:
        if rank == 0:
            yield send(1, 0)
            yield send(2, 0)
        else:
            yield recv(0, 0)

    after = times(one_program(program), star(3, OFF, overhead=0.1))
    assert after[0, 2, 1] == pytest.approx(2 * (0.1 + 1.448))
    half = times(one_program(program), star(3, replace(OFF, send_buffer=NBYTES / 2), overhead=0.1))
    assert half[0, 2, 1] == pytest.approx(0.1 + 2 * 1.448)
    late = times(one_program(program), star(3, replace(OFF, pipeline=True), overhead=0.1))
    assert late[0, 2, 1] == pytest.approx(0.1 + 2 * 1.448)  # a step late is as good


def test_acknowledgements_take_their_share_of_the_way_back():
    exchange = one_program(lambda rank, world_size: iter([(send(1 - rank, rank), recv(1 - rank, 1 - rank))]), chunks=2)
    terms = replace(OFF, header=66.0, acknowledgement=66.0, window=60_000.0)
    found = times(exchange, star(2, terms), 2 * NBYTES)
    assert found[0, 1, 0] == pytest.approx(1.514 + 500 * 66 / RATE, rel=0.01)


def test_starting_and_exchanging_take_their_time():
    terms = replace(OFF, exchange_overhead=0.5, start=2.0)
    assert times(from_0_to(1), star(2, terms))[0, 1, 0] == pytest.approx(2 + 1.448)
    exchange = one_program(lambda rank, world_size: iter([(send(1 - rank, rank), recv(1 - rank, 1 - rank))]), chunks=2)
    assert times(exchange, star(2, terms), 2 * NBYTES)[0, 1, 0] == pytest.approx(2.5 + 1.448, rel=1e-4)


def test_ranks_wait_for_the_cores_that_they_share():
    """Ranks 0 and 1 begin at 2 s, the others when those have done so: rank 0 hears of them only then."""
    shared = star(4, replace(OFF, start=2.0, cores=2))
    found = times(from_0_to(1, 2, 3), shared)
    assert [found[0, peer, 0] for peer in (1, 2, 3)] == pytest.approx([2 + 1.448, 4 + 1.448, 4 + 2 * 1.448])


def test_a_rank_keeps_its_core_while_it_posts():
    """Rank 0 posts all of its sends, 0.25 s each, before rank 1 has the only core."""
    terms = replace(OFF, post_cpu=0.25, cores=1)
    assert times(from_0_to(1, 2), star(3, terms))[0, 1, 0] == pytest.approx(2 * 0.25 + 0.25 + 1.448)


def test_posting_and_arriving_take_a_core():
    """One core serves the two ranks: the receive, the send, then what has come."""
    terms = replace(OFF, post_cpu=0.25, arrival_cpu=0.5)
    assert times(from_0_to(1), star(2, terms))[0, 1, 0] == pytest.approx(0.25 + 1.448 + 0.5)
    assert times(from_0_to(1), star(2, replace(terms, cores=1)))[0, 1, 0] == pytest.approx(0.5 + 1.448 + 0.5)
    own = times(from_0_to(1, 2), star(3, terms))
    assert [own[0, peer, 0] for peer in (1, 2)] == pytest.approx([0.25 + 1.448 + 0.5, 0.25 + 2 * 1.448 + 0.5])


def test_a_rank_that_had_to_wait_takes_a_core_before_it_goes_on():
    """Rank 1 waits for what it passes on; rank 2 gets it later, by what going on takes."""

    def program(rank: int, world_size: int) -> Program:
        if rank < 2:
            yield from () if rank == 0 else ((recv(0, 0),),)
            yield (send(rank + 1, 0),)
        else:
            yield (recv(1, 0),)

    relay, terms = one_program(program), replace(OFF, send_buffer=1e9)
    plain, woken = (times(relay, star(3, one)) for one in (terms, replace(terms, wake_cpu=0.5)))
    assert [woken[key] - plain[key] for key in sorted(plain)] == pytest.approx([0.0, 0.5])


def test_what_comes_at_once_is_taken_in_by_one_core_after_the_other():
    def program(rank: int, world_size: int) -> Program:
        yield tuple(recv(peer, peer) for peer in (1, 2, 3)) if rank == 0 else (send(0, rank),)

    fan_in, tiny = one_program(program, chunks=4), 16
    came = times(fan_in, star(4, replace(OFF, arrival_cpu=0.5, cores=1)), tiny)
    assert sorted(came.values()) == pytest.approx([0.5, 1.0, 1.5], rel=1e-3)


def test_reductions_of_ranks_that_share_a_core_follow_each_other():
    exchange = one_program(lambda rank, world_size: iter([(send(1 - rank, 0), recv_reduce(1 - rank, 0))]))
    cluster = star(2, OFF)
    assert cluster.transport is not None
    for cores, last in ((2, 0.1), (1, 0.2)):
        transport = replace(cluster.transport, gamma=0.1 / NBYTES, tcp=replace(OFF, cores=cores))
        alone = simcomm.run(exchange, replace(cluster, transport=replace(transport, gamma=0.0)), NBYTES).elapsed
        both = simcomm.run(exchange, replace(cluster, transport=transport), NBYTES).elapsed
        assert both - alone == pytest.approx(last)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_end_and_no_message_is_faster_than_its_links(seed: int):
    """Whatever the terms; and times alone are the same as with messages, run after run, to the last bit."""
    random = Random(seed)
    case = cases.random_case(random, 9)
    faults = Faults(messages=Jitter("exponential", 1e-4), compute=Jitter("uniform", 0.3), seed=seed)
    cluster = replace(case.cluster, transport=replace(case.transport, tcp=random_terms(random)))
    inputs = replace(case, cluster=cluster).inputs(faults)
    timing, again = by_segments(inputs, messages=True), by_segments(inputs)
    assert (timing.method, timing.messages) == ("events", again.messages)
    assert np.isfinite(timing.finished).all() and np.array_equal(timing.finished, again.finished)
    router, graph = cluster.router(), cluster.graph
    for message in trace_messages(inputs, timing):
        links = [graph.edges[link] for link in pairwise(router.route(*(cluster.hosts[end] for end in message[:2])))]
        rate = min((link["bandwidth"] for link in links), default=float("inf")) * case.transport.goodput
        least = sum(link["latency"] for link in links) + (message.nbytes - 4096) / rate
        assert message.end - message.begin >= least
        assert message.end <= timing.elapsed


def random_terms(random: Random) -> TcpTerms:
    return TcpTerms(
        pipeline=random.random() < 0.8,
        receive_ready=random.random() < 0.8,
        start=random.choice([0.0, 1e-4]),
        receive_ready_overhead=random.choice([0.0, 5e-5]),
        exchange_overhead=random.choice([0.0, 0.0, 1e-5]),
        cores=random.choice([1, 2, 3, float("inf")]),
        post_cpu=random.choice([0.0, 2e-5]),
        arrival_cpu=random.choice([0.0, 3e-5, 1e-4]),
        wake_cpu=random.choice([0.0, 0.0, 4e-5]),
        send_buffer=random.choice([0.0, 5e4, 1e6, float("inf")]),
        window=random.choice([2e4, 1.5e5, float("inf")]),
        piece=random.choice([2e4, 7e4, float("inf")]),
        header=random.choice([0.0, 66.0]),
        burst=random.choice([0.0, 4096.0]),
        acknowledgement=random.choice([0.0, 66.0]),
    )


def test_collectives_take_as_long_as_was_measured():
    """Eight emulated hosts, with terms from two of them: half of the times within 6 %, nearly all within 20."""
    found = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "accuracy_here.json").read_text())
    cluster = without_latencies(load("emulated/star8").cluster)
    transport = fit_pair(pair_before(found, "star8", hosts_bandwidth(cluster)), cluster.world_size)
    rows = [row for row in found["rows"] if row["scenario"] == "star8" and "/" not in row["what"]]
    rows = [row for row in rows if row["bytes"] is not None and row["what"] != "all_to_all"]
    cluster = replace(cluster, transport=transport)
    found = [simcomm.run(f"all_reduce/{row['what']}", cluster, row["bytes"], record=False).elapsed for row in rows]
    errors = [abs(seconds / row["measured_s"] - 1) for seconds, row in zip(found, rows, strict=True)]
    assert median(errors) < 0.06 and np.quantile(errors, 0.9) < 0.22


def test_ranks_that_compute_on_shared_cores_go_on_evenly():
    """On two cores four ranks compute at half speed; who is through lets the others go faster."""
    ring, terms = find_algorithm("all_reduce/ring"), TcpTerms()
    cluster = simcomm.star(4, "1000 Gbit/s", "0 us", Transport("gloo-tcp", tcp=terms))
    training, late = Training(ring), Faults(ranks=(RankFault(0, slowdown=2.0),))
    options = SimulationOptions(faults=late)
    trace = TcpSimulator(cluster, Transport("gloo-tcp", tcp=terms)).training(
        training, ComputePhases(2.0, 0.0, 0.0), 1, options, cores=2
    )  # a rank that does not wait for a core computes half as long: 1 s, and rank 0 takes 2 s
    forward = [span for span in trace.spans if span.name == "forward"]
    assert sorted(span.end for span in forward) == pytest.approx([2.0, 2.0, 2.0, 3.0])
    assert (trace.engine, trace.method) == ("compiled", "events")


def test_training_and_means_know_the_terms():
    ring, phases = find_algorithm("all_reduce/ring"), ComputePhases(0.1, 0.2, 0.05)
    terms = TcpTerms(send_buffer=1e6, window=1.5e6)
    cluster = simcomm.star(2, "10 Gbit/s", "5 us", Transport("gloo-tcp", 1e-5, gamma=1e-10, tcp=terms))
    training = Training(ring, compute=phases)
    alone = simcomm.run(CollectiveCall(ring, training.gradient_bytes // 4, op="mean"), cluster).elapsed
    found = simcomm.train(training, cluster, steps=2)
    assert found.elapsed == pytest.approx(2 * (0.35 + alone), rel=1e-3)


def test_trouble_that_the_terms_do_not_know_is_refused():
    cluster = star(3, TcpTerms())
    for faults in (
        Faults(ranks=(RankFault(1, fails_at=0.1),)),
        Faults(links=(LinkFault(("h0", "s0"), 0.5, at=1.0),)),
    ):
        with pytest.raises(InputError, match="TCP model"):
            simcomm.run("all_reduce/ring", cluster, 1000, faults=faults)


def test_the_engine_that_does_not_know_the_terms_is_refused():
    buffers = [np.ones(10) for _ in range(3)]
    for asked in ({"nbytes": 1000}, {"buffers": buffers}):
        with pytest.raises(InputError, match="engine 'simpy' does not support TCP"):
            simcomm.run("all_reduce/ring", star(3, TcpTerms()), engine="simpy", **asked)
    assert all((buffer == 1.0).all() for buffer in buffers)


def test_terms_that_mean_nothing_are_refused():
    for wrong in ({"window": 0}, {"send_buffer": -1}, {"payload": 0}, {"pipeline": 1}, {"burst": "4 kB"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            TcpTerms(**wrong)


def test_data_is_carried_whatever_the_times():
    buffers = [np.full(100, float(rank)) for rank in range(4)]
    assert simcomm.run("all_reduce/ring", star(4, TcpTerms()), buffers=buffers).elapsed > 0
    assert all((buffer == 6.0).all() for buffer in buffers)


def test_what_gloo_itself_does_is_a_ring_of_two_segments():
    """It moves as much as our ring, is proved like any program, and real ranks find it by its name."""
    gloo = find_algorithm("gloo", "all_reduce")
    assert gloo.backend == "gloo"
    assert pickle.loads(pickle.dumps(gloo)) is gloo
    for world_size in (1, 2, 3, 8):
        assert verify(gloo, world_size).messages == 2 * verify("all_reduce/ring", world_size).messages
    cluster = star(4, TcpTerms(send_buffer=1e6, window=1.5e5))
    ours, theirs = (simcomm.run(name, cluster, 1 << 20).elapsed for name in ("all_reduce/ring", "all_reduce/gloo"))
    assert theirs == pytest.approx(ours, rel=0.02)


def test_more_segments_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.SEGMENTS", 100)
    with pytest.raises(InputError, match="segments of TCP may be under way at once"):
        simcomm.run("all_reduce/ring", star(4, TcpTerms()), 16 << 20, engine="compiled")
    assert simcomm.run("all_reduce/ring", star(4, TcpTerms(window=4e4)), 1 << 20, engine="compiled").elapsed > 0
    monkeypatch.setattr("collectives.budget.Gigabyte.PLANNED", 20)
    with pytest.raises(TooLarge, match=r"its 24 messages .* one by one, as TCP is simulated; up to 20 will do"):
        simcomm.run("all_reduce/ring", star(4, TcpTerms()), 1 << 20, engine="compiled")
