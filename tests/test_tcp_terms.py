"""What each term of TCP does, in closed form; and both engines say the same under all of them."""

import pickle
from dataclasses import replace
from random import Random
from typing import Any

import compiled_cases as cases
import numpy as np
import pytest

import simcomm
from collectives import Algorithm, InputError, TcpTerms, Trace, Transport, find_algorithm
from collectives.proof.verifier import verify
from collectives.request import Request
from collectives.schedule.build import build_schedule
from collectives.spec import find_spec
from collectives.step import Program, recv, recv_reduce, send
from collectives.workload import ComputePhases, Training
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.engine import by_segments
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.tcp import simulate_tcp
from simcomm.compiled.traces import trace_messages, trace_reductions
from simcomm.engine_choice import ENGINES
from simcomm.model.jitter import Jitter
from simcomm.model.tcp_order import MESSAGE_HEADER
from simcomm.model.trouble import NO_TROUBLE, LinkTrouble, RankTrouble, Trouble
from simcomm.reference.engine import Buffer
from simcomm.reference.tcp_engine import TcpSimulation

OFF = TcpTerms(pipeline=False, notices=False, send_buffer=0.0, header=0.0, acknowledgement=0.0)
RATE = 1e6  # bytes/s of every link
NBYTES = 1_448_000 - int(MESSAGE_HEADER)  # 1000 full packets with gloo's header


def star(hosts: int, terms: TcpTerms, overhead: float = 0.0, latency: str = "0 us") -> Cluster:
    return simcomm.star(hosts, "1 MB/s", latency, Transport("gloo-tcp", overhead, tcp=terms))


def one_program(program: Any, chunks: int = 1) -> Algorithm:
    return Algorithm(find_spec("all_reduce"), "made up", program, chunks)


def times(algorithm: Algorithm, cluster: Cluster, nbytes: int = NBYTES) -> dict[tuple[int, int, int], float]:
    """When each message ends, by its ranks and step; the same by both engines, to the last bit."""
    one, other = (both(Request(algorithm, nbytes // 4), cluster, engine) for engine in ENGINES)
    assert one == other
    return one


def both(request: Request, cluster: Cluster, engine: str) -> dict[tuple[int, int, int], float]:
    transport = cluster.transport
    assert transport is not None
    if engine == "compiled":
        schedule = build_schedule(request.algorithm, cluster.world_size)
        found = simulate_tcp(EngineInput(request, schedule, cluster, transport), messages=True).times
        assert found is not None
        rows = zip(found.src.tolist(), found.dst.tolist(), found.step.tolist(), found.end.tolist(), strict=True)
        return {(src, dst, step): end for src, dst, step, end in rows}
    simulation = TcpSimulation(request, cluster, transport)
    buffer = Buffer(request.algorithm, cluster.world_size, request.elements, 4, None)
    simulation.run(simulation.collective(rank, (), buffer, "sum") for rank in range(cluster.world_size))
    return {(message.src, message.dst, message.step): message.end for message in simulation.messages}


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
    found = times(from_0_to(1), star(2, replace(OFF, notices=True, notice_overhead=0.5), latency="100 ms"))
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

    early = times(one_program(program), star(2, replace(OFF, notices=True, send_buffer=1e9)))
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
        both = [simcomm.run(exchange, replace(cluster, transport=transport), NBYTES, engine=one) for one in ENGINES]
        assert [trace.elapsed - alone for trace in both] == pytest.approx([last, last])


TROUBLES = [
    NO_TROUBLE,
    Trouble(ranks=(RankTrouble(0, slowdown=3.0),), messages=Jitter("exponential", 1e-4), seed=3),
    Trouble(compute=Jitter("uniform", 0.3), seed=5),
]


def random_terms(random: Random) -> TcpTerms:
    return TcpTerms(
        pipeline=random.random() < 0.8,
        notices=random.random() < 0.8,
        start=random.choice([0.0, 1e-4]),
        notice_overhead=random.choice([0.0, 5e-5]),
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


def rows(trace: Trace) -> list[tuple[object, ...]]:
    """Messages and spans in an order of their own."""
    return [*sorted(map(tuple, trace.messages)), *sorted(map(tuple, trace.spans))]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("most_ranks", [4, 9])
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_the_same_in_both_engines(seed: int, most_ranks: int, trouble: Trouble):
    compare_random_case(Random(seed), most_ranks, trouble)


def test_ranks_that_have_posted_at_one_instant_go_on_in_the_same_order_in_both_engines():
    compare_random_case(Random(96), 9, NO_TROUBLE)  # two ranks let messages of one sender begin at 120 us


def compare_random_case(random: Random, most_ranks: int, trouble: Trouble) -> None:
    """Raise AssertionError unless both engines find the same of a random program, network and terms."""
    case = cases.random_case(random, most_ranks)
    trouble = trouble if case.cluster.world_size > 1 else NO_TROUBLE
    check_both_engines(case, replace(case.transport, tcp=random_terms(random)), trouble)


def check_both_engines(case: cases.Case, transport: Transport, trouble: Trouble = NO_TROUBLE) -> None:
    """Raise AssertionError unless both engines find the same messages and reductions, to the last bit."""
    cluster = replace(case.cluster, transport=transport)
    simulation = TcpSimulation(case.request, cluster, transport, trouble)
    buffer = Buffer(case.schedule.algorithm, cluster.world_size, case.n, 4, None)
    elapsed = simulation.run(simulation.collective(rank, (), buffer, "sum") for rank in range(cluster.world_size))
    inputs = replace(case, cluster=cluster).inputs(trouble)
    timing = by_segments(inputs, messages=True)
    assert timing.elapsed == elapsed
    assert timing.method == "events"
    assert sorted(trace_messages(inputs, timing)) == sorted(simulation.messages)
    assert sorted(trace_reductions(inputs, timing)) == sorted(simulation.spans)


@pytest.mark.parametrize(
    "name", ["all_reduce/ring", "all_reduce/double_tree", "broadcast/binomial", "all_to_all/direct"]
)
@pytest.mark.parametrize("nbytes", [1200, 36 << 20])
def test_the_traces_of_the_library_are_the_same(name: str, nbytes: int):
    cluster = star(6, TcpTerms(send_buffer=1e6, window=1.5e5, burst=4096.0), overhead=1e-4, latency="5 us")
    cluster = replace(cluster, transport=replace(cluster.transport, gamma=1e-9))  # type: ignore[type-var]
    one, other = (simcomm.run(name, cluster, nbytes, engine=engine) for engine in ENGINES)
    assert rows(one) == rows(other)
    assert (one.links, one.elapsed, one.method) == (other.links, other.elapsed, other.method)


def test_training_and_means_know_the_terms():
    ring, phases = find_algorithm("all_reduce/ring"), ComputePhases(0.1, 0.2, 0.05)
    terms = TcpTerms(send_buffer=1e6, window=1.5e6)
    cluster = simcomm.star(2, "10 Gbit/s", "5 us", Transport("gloo-tcp", 1e-5, gamma=1e-10, tcp=terms))
    training = Training(ring, compute=phases)
    alone = simcomm.run(Request(ring, training.gradient_bytes // 4, op="mean"), cluster).elapsed
    found = simcomm.train(training, cluster, steps=2)
    assert found.elapsed == pytest.approx(2 * (0.35 + alone), rel=1e-3)


def test_trouble_that_the_terms_do_not_know_is_refused():
    cluster = star(3, TcpTerms())
    for trouble in (
        Trouble(ranks=(RankTrouble(1, fails_at=0.1),)),
        Trouble(links=(LinkTrouble(("h0", "s0"), 0.5, at=1.0),)),
    ):
        for engine in ENGINES:
            with pytest.raises(InputError, match="terms of TCP"):
                simcomm.run("all_reduce/ring", cluster, 1000, trouble=trouble, engine=engine)


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
    monkeypatch.setattr("simcomm.compiled.tcp.MOST_AT_ONCE", 100)
    with pytest.raises(InputError, match="segments of TCP may be under way at once"):
        simcomm.run("all_reduce/ring", star(4, TcpTerms()), 16 << 20, engine="compiled")
    assert simcomm.run("all_reduce/ring", star(4, TcpTerms(window=4e4)), 1 << 20, engine="compiled").elapsed > 0
