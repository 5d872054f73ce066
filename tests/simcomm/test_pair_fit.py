"""A fit to probes of a synthetic pair of hosts returns the TCP terms from which they were computed."""

from dataclasses import replace
from typing import Any

import pytest
from pair_probes import PAIR, RATE, SIZES

import simcomm
from collectives import InputError
from collectives.records.calibration import Calibration, CrowdRound, FittedLine, PairProbes
from collectives.transport import TcpTerms
from simcomm.cluster.pair_fit import fit_pair


def fit_terms(probes: PairProbes, ranks: int | None = None) -> TcpTerms:
    terms = fit_pair(probes, ranks).tcp
    assert terms is not None
    return terms


def test_fit_returns_the_parameters_of_the_pair():
    transport, terms = fit_pair(PAIR), fit_terms(PAIR)
    assert (transport.overhead, transport.gamma, transport.goodput) == (pytest.approx(80e-6), pytest.approx(3e-10), 1.0)
    assert (terms.post_cpu, terms.arrival_cpu, terms.cores) == (pytest.approx(30e-6), pytest.approx(40e-6), 2)
    assert terms.wake_cpu == pytest.approx(50e-6)
    assert (terms.receive_ready_overhead, terms.start) == (pytest.approx(80e-6), pytest.approx(450e-6 - 40e-6 - 80e-6))
    assert terms.exchange_overhead == pytest.approx(450e-6 - 200e-6 - 70e-6)
    assert terms.send_buffer == pytest.approx(1e6)
    assert (terms.window, terms.piece, terms.burst, terms.packet) == (147e3, 45 * 1448.0, 4096.0, 1514.0)


def test_fitted_model_predicts_its_own_pair():
    pair = simcomm.star(2, "50 Mbit/s", "0 us", fit_pair(PAIR))
    for nbytes, seconds in PAIR.arrived:
        assert simcomm.run("broadcast/naive", pair, nbytes).elapsed == pytest.approx(seconds, rel=0.01)


def test_pair_without_crowded_rounds_has_no_cpu_times():
    transport = fit_pair(replace(PAIR, crowds=[], cores=0))
    assert transport.tcp is not None
    assert (transport.overhead, transport.tcp.post_cpu, transport.tcp.cores) == (pytest.approx(2e-4), 0.0, float("inf"))


def with_own(slowdown: float = 1.0) -> PairProbes:
    """Return the pair with probes of gloo's own collectives: half of 70 and 25 us, twice per message, on two cores."""
    times = [(messages, slowdown * (1e-3 + messages * 47.5e-6)) for messages in (24, 112)]
    return replace(PAIR, crowds=[replace(crowd, own=times) for crowd in PAIR.crowds])


def test_own_share_applies_to_gloo_collectives_only():
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


def test_sleeping_ranks_start_in_equal_time():
    asleep = replace(PAIR, crowds=crowds(500e-6))
    starts = [fit_terms(asleep, ranks).start for ranks in (2, 4, 6, 8, 16, None)]
    assert fit_terms(replace(PAIR, crowds=crowds(1e-6))).start == starts[0] < 500e-6
    assert starts == pytest.approx([starts[0], *5 * [500e-6]])
    awake, sleeping = CrowdRound(4, 1e-3, 1e-3, 9e-3), CrowdRound(8, 8 * 140e-6 / 6, 8 * 140e-6 / 6, 8 * 500e-6 / 6)
    many = replace(PAIR, cores=6, crowds=[awake, sleeping])
    assert fit_terms(many) == fit_terms(replace(many, crowds=[sleeping]))


def test_fitted_cpu_time_of_a_message_is_at_most_a_step():
    terms = fit_terms(replace(PAIR, crowds=[replace(crowd, further=3 * crowd.step) for crowd in PAIR.crowds]))
    assert (terms.post_cpu + terms.arrival_cpu, terms.wake_cpu) == (pytest.approx(95e-6), 0.0)


@pytest.mark.parametrize("microseconds", range(50, 60))
def test_overhead_is_zero_if_cores_take_the_whole_hop(microseconds: int) -> None:
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
    jumbo = RATE * 8948 / 9014
    terms = fit_terms(replace(PAIR, mtu=9000, arrived=[(nbytes, nbytes / jumbo) for nbytes in SIZES]))
    assert (terms.payload, terms.packet, terms.piece) == (8948.0, 9014.0, 7 * 8948.0)


def test_unexplained_goodput_is_rejected():
    slow = [(nbytes, 1.02 * seconds) for nbytes, seconds in PAIR.arrived]
    with pytest.raises(InputError, match=r"5\.86 MB/s of data.* 50 Mbit/s should give 5\.978 MB/s"):
        fit_pair(replace(PAIR, arrived=slow))


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth": 0.0},
        {"mtu": 52},
        {"chains": []},
        {"chains": PAIR.chains + PAIR.chains[:1]},
        {"exchange": [(65, 450e-6)]},
        {"arrived": PAIR.arrived[:1]},
        {"arrived": [(nbytes, 1.0) for nbytes in SIZES]},
        {"send_done": PAIR.send_done[:1]},
        {"arrived": PAIR.arrived[:2]},
        {"at_once": PAIR.at_once[:1]},
        {"crowds": [replace(PAIR.crowds[0], own=2 * [(24, 1e-3)])]},
        {"reduction": [(0, 1e-3)]},
    ],
)
def test_incomplete_probes_are_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="probes of the pair of hosts are incomplete; calibrate again"):
        fit_pair(replace(PAIR, **changes))


def test_calibrated_cluster_keeps_its_own_tcp_terms():
    line = FittedLine(2e-5, 1e-9, 0.0)
    calibration = Calibration(2, 1, one_way=line, both_ways=line, reduction=line, pair=PAIR)
    cluster = simcomm.star(4, "50 Mbit/s", "5 us", None)
    transport = cluster.calibrated_by(calibration).transport
    assert transport is not None and transport.tcp == fit_terms(PAIR)
    changed = replace(cluster, tcp_terms={"window": 1e6}).calibrated_by(calibration).transport
    assert changed is not None and changed.tcp == replace(fit_terms(PAIR), window=1e6)
