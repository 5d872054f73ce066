"""Each TCP term against its closed form, fitted to probes of a synthetic pair of hosts, and against measured times."""

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
from pair_probes import PAIR, SIZES
from pair_probes import RATE as PAIR_RATE

import simcomm
from benchmarks.accuracy.here import pair_before
from collectives import InputError, TcpTerms, Transport, find_algorithm
from collectives.call import CollectiveCall
from collectives.errors import TooLarge
from collectives.proof.verifier import verify
from collectives.records.calibration import CrowdRound, PairProbes
from collectives.schedule.build import build_schedule
from collectives.step import recv, recv_reduce, send
from collectives.training.workload import ComputePhases, Training
from ringlab.emulated import hosts_bandwidth, without_latencies
from scenarios import load
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.pair_fit import fit_pair
from simcomm.compiled.engine import by_segments
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.tcp.records import MESSAGE_HEADER
from simcomm.compiled.traces import trace_messages
from simcomm.model.faults import Faults, Jitter, LinkFault, RankFault
from simcomm.performance_models.network_model import TcpSimulator
from simcomm.performance_models.options import SimulationOptions

OFF = TcpTerms(pipeline=False, receive_ready=False, send_buffer=0.0, header=0.0, acknowledgement=0.0)
RATE = 1e6  # bytes/s of every link
NBYTES = 1_448_000 - int(MESSAGE_HEADER)  # 1000 full packets with gloo's header: 1.448 s


def star(hosts: int, terms: TcpTerms, overhead: float = 0.0, latency: str = "0 us") -> Cluster:
    return simcomm.star(hosts, "1 MB/s", latency, Transport("gloo-tcp", overhead, tcp=terms))


def times(programs: list[list[tuple[Any, ...]]], cluster: Cluster, nbytes: int = NBYTES) -> list[float]:
    """Return the end times of all messages, sorted by step and ranks. A program is the list of a rank's steps."""
    chunks = 1 + max(operation.chunk for program in programs for step in program for operation in step)
    algorithm, transport = cases.as_algorithm([[program] for program in programs], chunks), cluster.transport
    assert transport is not None
    call = CollectiveCall(algorithm, nbytes // 4)
    inputs = EngineInput(call, build_schedule(algorithm, cluster.world_size), cluster, transport)
    messages = trace_messages(inputs, by_segments(inputs, messages=True))
    return [message.end for message in sorted(messages, key=lambda message: (message.step, *message[:2]))]


def ends_from_0(cluster: Cluster) -> list[float]:
    """Return the end times of messages from rank 0 to all other ranks in one step."""
    peers = range(1, cluster.world_size)
    return times([[tuple(send(peer, 0) for peer in peers)], *([(recv(0, 0),)] for _ in peers)], cluster)


@pytest.mark.parametrize(
    ("cluster", "expected", "rel"),
    [
        (star(2, OFF, overhead=0.25), [0.25 + 1.448], 1e-6),
        (star(2, replace(OFF, header=66.0)), [1.514], 1e-6),
        (star(2, replace(OFF, burst=4096.0)), [1.448 - 4096 / RATE], 1e-6),  # passes at once after an idle time
        (
            star(2, replace(OFF, receive_ready=True, receive_ready_overhead=0.5), latency="100 ms"),
            [0.5 + 0.2 + MESSAGE_HEADER / RATE + 0.2 + 1.448],
            1e-6,
        ),
        (star(2, replace(OFF, exchange_overhead=0.5, start=2.0)), [2 + 1.448], 1e-6),
        (star(2, replace(OFF, post_cpu=0.25, arrival_cpu=0.5)), [0.25 + 1.448 + 0.5], 1e-6),
        (star(2, replace(OFF, post_cpu=0.25, arrival_cpu=0.5, cores=1)), [0.5 + 1.448 + 0.5], 1e-6),
        (star(2, replace(OFF, piece=16 * 1448.0), latency="1 s"), [2 + 1.448], 1e-6),  # acknowledgments do not limit it
        (star(2, replace(OFF, piece=1.0)), [1.448], 1e-6),  # one segment may always be on the link
        (  # the window is sent once per round trip
            star(2, replace(OFF, window=16 * 1448.0), latency="1 s"),
            [62 * (4 + 8 * 1448 / RATE) + 2 + 8 * 1448 / RATE],
            1e-3,
        ),
        (star(4, OFF), [1.448, 2 * 1.448, 3 * 1.448], 1e-6),  # within the window, messages leave one after the other
        (star(4, replace(OFF, window=30_000.0)), [3 * 1.448] * 3, 0.03),  # beyond it, they share the link
        (star(3, replace(OFF, piece=30_000.0)), [2 * 1.448] * 2, 0.02),
        (star(4, replace(OFF, start=2.0, cores=2)), [2 + 1.448, 4 + 1.448, 4 + 2 * 1.448], 1e-6),  # two start later
        (star(3, replace(OFF, post_cpu=0.25, arrival_cpu=0.5)), [0.25 + 1.948, 0.25 + 2 * 1.448 + 0.5], 1e-6),
        # rank 0 posts both of its sends, 0.25 s each, before rank 1 gets the only core
        (star(3, replace(OFF, post_cpu=0.25, cores=1)), [0.75 + 1.448, 0.75 + 2 * 1.448], 1e-6),
    ],
)
def test_tcp_message_time_is_the_sum_of_its_terms(cluster: Cluster, expected: list[float], rel: float):
    assert ends_from_0(cluster) == pytest.approx(expected, rel=rel)


def test_tcp_segment_size_has_no_effect_within_a_host():
    host = star(2, OFF).hosts[0]
    inside = [ends_from_0(replace(star(2, terms), hosts=(host, host))) for terms in (OFF, replace(OFF, piece=1.0))]
    assert inside[0] == inside[1]


def test_receive_ready_notification_queues_behind_data():
    """Rank 1 posts its receive after its send has started, so rank 0 is notified when all data has arrived."""
    there_and_back = [[(recv(1, 0),), (send(1, 0),)], [(send(0, 0),), (recv(0, 0),)]]
    first, second = times(there_and_back, star(2, replace(OFF, receive_ready=True, send_buffer=1e9)))
    assert second - first == pytest.approx(1.448 + MESSAGE_HEADER / RATE)
    assert times(there_and_back, star(2, replace(OFF, send_buffer=1e9)))[1] == pytest.approx(2 * 1.448)


def test_send_completes_once_it_fits_into_the_send_buffer():
    """With a buffer for all data, rank 0 reaches its second step at once."""
    two_steps = [[(send(1, 0),), (send(2, 0),)], [(recv(0, 0),)], [(recv(0, 0),)]]
    terms = (OFF, replace(OFF, send_buffer=NBYTES / 2), replace(OFF, pipeline=True))
    ends = [max(times(two_steps, star(3, each, overhead=0.1))) for each in terms]
    assert ends == pytest.approx([2 * (0.1 + 1.448), 0.1 + 2 * 1.448, 0.1 + 2 * 1.448])


def test_tcp_exchange_time_includes_overhead_and_acknowledgments():
    exchange = [[(send(1, 0), recv(1, 1))], [(send(0, 1), recv(0, 0))]]
    overhead = times(exchange, star(2, replace(OFF, exchange_overhead=0.5, start=2.0)), 2 * NBYTES)
    assert overhead[0] == pytest.approx(2.5 + 1.448, rel=1e-4)
    terms = replace(OFF, header=66.0, acknowledgement=66.0, window=60_000.0)
    assert times(exchange, star(2, terms), 2 * NBYTES)[0] == pytest.approx(1.514 + 500 * 66 / RATE, rel=0.01)


def test_wake_up_of_a_rank_delays_the_data_that_it_forwards():
    """Rank 1 waits for the data that it forwards, so rank 2 gets it later."""
    relay, terms = [[(send(1, 0),)], [(recv(0, 0),), (send(2, 0),)], [(recv(1, 0),)]], replace(OFF, send_buffer=1e9)
    plain, woken = (times(relay, star(3, each)) for each in (terms, replace(terms, wake_cpu=0.5)))
    assert np.subtract(woken, plain) == pytest.approx([0.0, 0.5])


def test_simultaneous_arrivals_share_one_core():
    programs = [[tuple(recv(peer, peer) for peer in (1, 2, 3))], *([(send(0, rank),)] for rank in (1, 2, 3))]
    ends = times(programs, star(4, replace(OFF, arrival_cpu=0.5, cores=1)), 16)
    assert sorted(ends) == pytest.approx([0.5, 1.0, 1.5], rel=1e-3)


@pytest.mark.parametrize(("cores", "last"), [(2, 0.1), (1, 0.2)])
def test_reductions_share_cores(cores: int, last: float):
    exchange = cases.as_algorithm([[[(send(1 - rank, 0), recv_reduce(1 - rank, 0))]] for rank in (0, 1)], 1)
    seconds = []
    for gamma in (0.1 / NBYTES, 0.0):
        transport = Transport("gloo-tcp", gamma=gamma, tcp=replace(OFF, cores=cores))
        inputs = cases.Case(build_schedule(exchange, 2), replace(star(2, OFF), transport=transport), NBYTES // 4)
        seconds.append(by_segments(inputs.inputs()).elapsed)
    assert seconds[0] - seconds[1] == pytest.approx(last)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_end_and_respect_link_rates(seed: int):
    """Times without messages are bit-identical to those with messages."""
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
        assert least <= message.end - message.begin and message.end <= timing.elapsed


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


def test_tcp_predictions_match_measured_collectives():
    """Eight emulated hosts, with terms fitted to two of them: median error below 6 %, 90 % of errors below 22 %."""
    results = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "accuracy_here.json").read_text())
    cluster = without_latencies(load("emulated/star8").cluster)
    transport = fit_pair(pair_before(results, "star8", hosts_bandwidth(cluster)), cluster.world_size)
    rows = [row for row in results["rows"] if row["scenario"] == "star8" and "/" not in row["what"]]
    rows = [row for row in rows if row["bytes"] is not None and row["what"] != "all_to_all"]
    cluster = replace(cluster, transport=transport)
    seconds = [simcomm.run(f"all_reduce/{row['what']}", cluster, row["bytes"], record=False).elapsed for row in rows]
    errors = [abs(predicted / row["measured_s"] - 1) for predicted, row in zip(seconds, rows, strict=True)]
    assert median(errors) < 0.06 and np.quantile(errors, 0.9) < 0.22


def test_ranks_share_cores_evenly_while_they_compute():
    """Four ranks compute at half speed on two cores, and faster once others have finished."""
    terms = TcpTerms()
    cluster = simcomm.star(4, "1000 Gbit/s", "0 us", Transport("gloo-tcp", tcp=terms))
    training = Training(find_algorithm("all_reduce/ring"))
    options = SimulationOptions(faults=Faults((RankFault(0, 2.0),)))
    trace = TcpSimulator(cluster, Transport("gloo-tcp", tcp=terms)).training(
        training, ComputePhases(2.0, 0.0, 0.0), 1, options, cores=2
    )  # alone on a core, a rank computes for 1 s, and rank 0 for 2 s
    assert sorted(span.end for span in trace.spans if span.name == "forward") == pytest.approx([2.0, 2.0, 2.0, 3.0])
    assert (trace.engine, trace.method) == ("compiled", "events")


def test_tcp_transport_predicts_training_with_mean_all_reduce():
    ring, phases = find_algorithm("all_reduce/ring"), ComputePhases(0.1, 0.2, 0.05)
    terms = TcpTerms(send_buffer=1e6, window=1.5e6)
    cluster = simcomm.star(2, "10 Gbit/s", "5 us", Transport("gloo-tcp", 1e-5, gamma=1e-10, tcp=terms))
    training = Training(ring, compute=phases)
    alone = simcomm.run(CollectiveCall(ring, training.gradient_bytes // 4, op="mean"), cluster).elapsed
    assert simcomm.train(training, cluster, steps=2).elapsed == pytest.approx(2 * (0.35 + alone), rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faults": Faults(ranks=(RankFault(1, fails_at=0.1),))}, "TCP model"),
        ({"faults": Faults(links=(LinkFault(("h0", "s0"), 0.5, at=1.0),))}, "TCP model"),
        ({"engine": "simpy"}, "engine 'simpy' does not support TCP"),
    ],
)
def test_tcp_rejects_unsupported_faults_and_engines(options: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        simcomm.run("all_reduce/ring", star(3, TcpTerms()), 1000, **options)


@pytest.mark.parametrize(
    "wrong", [{"window": 0}, {"send_buffer": -1}, {"payload": 0}, {"pipeline": 1}, {"burst": "4 kB"}], ids=str
)
def test_tcp_terms_reject_invalid_values(wrong: dict[str, Any]):
    with pytest.raises(InputError, match=next(iter(wrong))):
        TcpTerms(**wrong)


def test_buffers_are_reduced_over_tcp():
    buffers = [np.full(100, float(rank)) for rank in range(4)]
    assert simcomm.run("all_reduce/ring", star(4, TcpTerms()), buffers=buffers).elapsed > 0
    assert all((buffer == 6.0).all() for buffer in buffers)


def test_gloo_all_reduce_is_a_ring_of_two_segments():
    gloo = find_algorithm("gloo", "all_reduce")
    assert gloo.backend == "gloo" and pickle.loads(pickle.dumps(gloo)) is gloo
    for world_size in (1, 2, 3, 8):
        assert verify(gloo, world_size).messages == 2 * verify("all_reduce/ring", world_size).messages
    cluster = star(4, TcpTerms(send_buffer=1e6, window=1.5e5))
    ours, theirs = (simcomm.run(name, cluster, 1 << 20).elapsed for name in ("all_reduce/ring", "all_reduce/gloo"))
    assert theirs == pytest.approx(ours, rel=0.02)


def test_too_many_segments_are_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.SEGMENTS", 100)
    with pytest.raises(InputError, match="TCP segments may be in flight at once"):
        simcomm.run("all_reduce/ring", star(4, TcpTerms()), 16 << 20, engine="compiled")
    assert simcomm.run("all_reduce/ring", star(4, TcpTerms(window=4e4)), 1 << 20, engine="compiled").elapsed > 0
    monkeypatch.setattr("collectives.budget.Gigabyte.PLANNED", 20)
    with pytest.raises(TooLarge, match=r"its 24 messages .* one by one over TCP; the limit is 20"):
        simcomm.run("all_reduce/ring", star(4, TcpTerms()), 1 << 20, engine="compiled")


def fit_terms(probes: PairProbes, ranks: int | None = None) -> TcpTerms:
    terms = fit_pair(probes, ranks).tcp
    assert terms is not None
    return terms


def test_fit_of_two_hosts_recovers_the_tcp_parameters():
    transport, terms = fit_pair(PAIR), fit_terms(PAIR)
    assert (transport.overhead, transport.gamma, transport.goodput) == (pytest.approx(80e-6), pytest.approx(3e-10), 1.0)
    assert (terms.post_cpu, terms.arrival_cpu, terms.cores) == (pytest.approx(30e-6), pytest.approx(40e-6), 2)
    assert terms.wake_cpu == pytest.approx(50e-6)
    assert (terms.receive_ready_overhead, terms.start) == (pytest.approx(80e-6), pytest.approx(450e-6 - 40e-6 - 80e-6))
    assert terms.exchange_overhead == pytest.approx(450e-6 - 200e-6 - 70e-6)
    assert terms.send_buffer == pytest.approx(1e6)
    assert (terms.window, terms.piece, terms.burst, terms.packet) == (147e3, 45 * 1448.0, 4096.0, 1514.0)


def test_fitted_tcp_model_predicts_its_own_measurements():
    pair = simcomm.star(2, "50 Mbit/s", "0 us", fit_pair(PAIR))
    for nbytes, seconds in PAIR.arrived:
        assert simcomm.run("broadcast/naive", pair, nbytes).elapsed == pytest.approx(seconds, rel=0.01)


def test_fit_without_multi_rank_probes_has_no_cpu_times():
    transport = fit_pair(replace(PAIR, crowds=[], cores=0))
    assert transport.tcp is not None
    assert (transport.overhead, transport.tcp.post_cpu, transport.tcp.cores) == (pytest.approx(2e-4), 0.0, float("inf"))


def with_own(slowdown: float = 1.0) -> PairProbes:
    """Return the pair with probes of gloo's own collectives: half of 70 and 25 us, twice per message, on two cores."""
    times = [(messages, slowdown * (1e-3 + messages * 47.5e-6)) for messages in (24, 112)]
    return replace(PAIR, crowds=[replace(crowd, own=times) for crowd in PAIR.crowds])


def test_fitted_gloo_cpu_share_applies_to_gloo_collectives_only():
    assert fit_terms(with_own()).own_share == pytest.approx(0.5)
    assert fit_terms(with_own(slowdown=9)).own_share == 1.0  # C++ is not slower than Python
    star = simcomm.star(8, "50 Mbit/s", "0 us", fit_pair(with_own()))
    fitted = replace(star, transport=fit_pair(PAIR))
    gloo, ring = (simcomm.run(f"all_reduce/{name}", star, 4096).elapsed for name in ("gloo", "ring"))
    assert gloo < simcomm.run("all_reduce/gloo", fitted, 4096).elapsed
    assert ring == simcomm.run("all_reduce/ring", fitted, 4096).elapsed


def crowds(*waking: float, step: float = 70e-6) -> list[CrowdRound]:
    """Return rounds of 4 and 8 ranks: ``step`` twice per message and notification, plus the time to wake a rank."""
    rounds = ((ranks, each) for ranks in (4, 8) for each in waking)
    return [CrowdRound(ranks, ranks * 2 * step / 2, ranks * 2 * step / 2, ranks * each / 2) for ranks, each in rounds]


def test_fitted_start_time_is_equal_for_four_or_more_idle_ranks():
    asleep = replace(PAIR, crowds=crowds(500e-6))
    starts = [fit_terms(asleep, ranks).start for ranks in (2, 4, 6, 8, 16, None)]
    assert fit_terms(replace(PAIR, crowds=crowds(1e-6))).start == starts[0] < 500e-6
    assert starts == pytest.approx([starts[0], *5 * [500e-6]])
    awake, sleeping = CrowdRound(4, 1e-3, 1e-3, 9e-3), CrowdRound(8, 8 * 140e-6 / 6, 8 * 140e-6 / 6, 8 * 500e-6 / 6)
    many = replace(PAIR, cores=6, crowds=[awake, sleeping])
    assert fit_terms(many) == fit_terms(replace(many, crowds=[sleeping]))


def test_fitted_cpu_time_of_a_message_is_at_most_its_step_time():
    terms = fit_terms(replace(PAIR, crowds=[replace(crowd, further=3 * crowd.step) for crowd in PAIR.crowds]))
    assert (terms.post_cpu + terms.arrival_cpu, terms.wake_cpu) == (pytest.approx(95e-6), 0.0)


@pytest.mark.parametrize("microseconds", range(50, 60))
def test_overhead_is_zero_when_cpu_takes_the_whole_message_time(microseconds: int) -> None:
    busy = CrowdRound(8, step=8e-3, further=8 * microseconds * 1e-6, waking=0.0)
    assert fit_pair(replace(PAIR, crowds=[busy])).overhead == pytest.approx(0.0, abs=1e-9)


def test_few_disturbed_probes_do_not_change_the_fit():
    undisturbed = replace(PAIR, crowds=crowds(*7 * [500e-6]))
    disturbed = replace(undisturbed, crowds=undisturbed.crowds + crowds(9e-3, -2e-3, 9e-3, step=9e-4))
    assert fit_pair(disturbed) == fit_pair(undisturbed)
    assert [fit_pair(part) for part in undisturbed.parts] == 4 * [fit_pair(undisturbed)]
    chains = [(nbytes, hops, seconds + (5e-4 if hops == 5 else 0.0)) for nbytes, hops, seconds in PAIR.chains]
    assert fit_pair(replace(PAIR, chains=chains)).overhead == pytest.approx(fit_pair(PAIR).overhead)


def test_jumbo_frames_have_fewer_headers():
    jumbo = PAIR_RATE * 8948 / 9014
    terms = fit_terms(replace(PAIR, mtu=9000, arrived=[(nbytes, nbytes / jumbo) for nbytes in SIZES]))
    assert (terms.payload, terms.packet, terms.piece) == (8948.0, 9014.0, 7 * 8948.0)


def test_goodput_that_headers_do_not_explain_is_rejected():
    slow = [(nbytes, 1.02 * seconds) for nbytes, seconds in PAIR.arrived]
    with pytest.raises(InputError, match=r"5\.86 MB/s over .* 50 Mbit/s, which should carry 5\.978 MB/s"):
        fit_pair(replace(PAIR, arrived=slow))


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth": 0.0},
        {"chains": []},
        {"arrived": [(nbytes, 1.0) for nbytes in SIZES]},
        {"crowds": [replace(PAIR.crowds[0], own=2 * [(24, 1e-3)])]},
        {"reduction": [(0, 1e-3)]},
    ],
)
def test_incomplete_measurements_of_two_hosts_are_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="measurements between two hosts are incomplete; calibrate again"):
        fit_pair(replace(PAIR, **changes))
