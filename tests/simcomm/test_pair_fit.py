"""The terms of TCP that a pair of hosts shows: a made-up pair gives back what it was made of."""

from dataclasses import replace
from typing import Any

import pytest
from pair_probes import PAIR, RATE, SIZES

import simcomm
from collectives import InputError
from collectives.records.calibration import Calibration, CrowdRound, FittedLine, PairProbes
from simcomm.cluster.pair_fit import fit_pair


def test_the_fit_finds_what_the_pair_was_made_of():
    found = fit_pair(PAIR)
    terms = found.tcp
    assert terms is not None
    assert (found.overhead, found.gamma, found.goodput) == (pytest.approx(80e-6), pytest.approx(3e-10), 1.0)
    assert (terms.post_cpu, terms.arrival_cpu, terms.cores) == (pytest.approx(30e-6), pytest.approx(40e-6), 2)
    assert terms.wake_cpu == pytest.approx(50e-6)
    assert (terms.receive_ready_overhead, terms.start) == (pytest.approx(80e-6), pytest.approx(450e-6 - 40e-6 - 80e-6))
    assert terms.exchange_overhead == pytest.approx(450e-6 - 200e-6 - 70e-6)
    assert terms.send_buffer == pytest.approx(1e6)
    assert (terms.window, terms.piece, terms.burst, terms.packet) == (147e3, 45 * 1448.0, 4096.0, 1514.0)


def test_the_model_predicts_the_pair_that_it_was_fitted_to():
    pair = simcomm.star(2, "50 Mbit/s", "0 us", fit_pair(PAIR))
    for nbytes, seconds in PAIR.arrived:
        assert simcomm.run("broadcast/naive", pair, nbytes).elapsed == pytest.approx(seconds, rel=0.01)


def test_a_pair_without_a_crowd_says_nothing_of_cores():
    found = fit_pair(replace(PAIR, crowds=[], cores=0))
    assert found.tcp is not None
    assert (found.overhead, found.tcp.post_cpu, found.tcp.cores) == (pytest.approx(200e-6), 0.0, float("inf"))


def test_what_gloo_posts_itself_costs_its_share_in_its_own_collectives_only():
    own = [
        (24, 1e-3 + 24 * 47.5e-6),
        (112, 1e-3 + 112 * 47.5e-6),
    ]  # half of 70 and 25 us, twice a message, on two cores

    def with_own(points: list[tuple[int, float]]) -> PairProbes:
        return replace(PAIR, crowds=[replace(one, own=points) for one in PAIR.crowds])

    found = fit_pair(with_own(own))
    assert found.tcp is not None and found.tcp.own_share == pytest.approx(0.5)
    slower = fit_pair(with_own([(nbytes, 9 * seconds) for nbytes, seconds in own])).tcp
    assert slower is not None and slower.own_share == 1.0  # C++ is no slower than Python
    star = simcomm.star(8, "50 Mbit/s", "0 us", found)
    whole = replace(star, transport=fit_pair(PAIR))
    gloo, ring = (simcomm.run(f"all_reduce/{name}", star, 4096).elapsed for name in ("gloo", "ring"))
    assert gloo < simcomm.run("all_reduce/gloo", whole, 4096).elapsed
    assert ring == simcomm.run("all_reduce/ring", whole, 4096).elapsed


def crowds(*waking: float, step: float = 70e-6) -> list[CrowdRound]:
    """Rounds of crowds of 4 and 8: ``step`` for each message and its notification, twice, and a rank's wake-up."""
    rounds = ((ranks, one) for ranks in (4, 8) for one in waking)
    return [CrowdRound(ranks, ranks * 2 * step / 2, ranks * 2 * step / 2, ranks * one / 2) for ranks, one in rounds]


def test_ranks_that_slept_take_as_long_to_start_however_many_there_are():
    slept = replace(PAIR, crowds=crowds(500e-6))
    starts = [terms.start for ranks in (2, 4, 6, 8, 16, None) if (terms := fit_pair(slept, ranks).tcp) is not None]
    awake, brief = fit_pair(slept, 2).tcp, fit_pair(replace(PAIR, crowds=crowds(1e-6))).tcp
    assert awake is not None and brief is not None and brief.start == awake.start < 500e-6
    assert starts == pytest.approx([awake.start, *5 * [500e-6]])
    many = replace(
        PAIR,
        cores=6,
        crowds=[CrowdRound(4, 1e-3, 1e-3, 9e-3), CrowdRound(8, 8 * 140e-6 / 6, 8 * 140e-6 / 6, 8 * 500e-6 / 6)],
    )
    assert fit_pair(many).tcp == fit_pair(replace(many, crowds=many.crowds[1:])).tcp  # four were awake


def test_a_further_message_takes_no_longer_than_a_step_of_one():
    terms = fit_pair(replace(PAIR, crowds=[replace(one, further=3 * one.step) for one in PAIR.crowds])).tcp
    assert terms is not None
    assert (terms.post_cpu + terms.arrival_cpu, terms.wake_cpu) == (pytest.approx(95e-6), 0.0)


@pytest.mark.parametrize("microseconds", range(50, 60))
def test_fit_bears_cores_that_take_a_whole_hop(microseconds: int) -> None:
    busy = CrowdRound(8, step=8e-3, further=8 * microseconds * 1e-6, waking=0.0)
    assert fit_pair(replace(PAIR, crowds=[busy])).overhead == pytest.approx(0.0, abs=1e-9)


def test_rounds_that_were_disturbed_change_nothing_while_most_were_not():
    quiet, disturbed = crowds(*7 * [500e-6]), crowds(9e-3, -2e-3, 9e-3, step=9e-4)
    whole = replace(PAIR, crowds=quiet)
    assert fit_pair(replace(PAIR, crowds=quiet + disturbed)) == fit_pair(whole)
    assert [fit_pair(part) for part in whole.parts] == 4 * [fit_pair(whole)]


def test_a_chain_that_was_disturbed_counts_less_than_those_that_were_not():
    disturbed = [(nbytes, hops, seconds + (5e-4 if hops == 5 else 0.0)) for nbytes, hops, seconds in PAIR.chains]
    assert fit_pair(replace(PAIR, chains=disturbed)).overhead == pytest.approx(fit_pair(PAIR).overhead)


def test_jumbo_frames_have_less_headers():
    jumbo = RATE * 8948 / 9014
    arrived = [(nbytes, nbytes / jumbo) for nbytes in SIZES]
    found = fit_pair(replace(PAIR, mtu=9000, arrived=arrived)).tcp
    assert found is not None
    assert (found.payload, found.packet, found.piece) == (8948.0, 9014.0, 7 * 8948.0)


def test_a_pair_that_something_else_limits_is_refused():
    slow = [(nbytes, 1.02 * seconds) for nbytes, seconds in PAIR.arrived]
    with pytest.raises(InputError, match=r"5\.86 MB/s of data.* 50 Mbit/s should give 5\.978 MB/s"):
        fit_pair(replace(PAIR, arrived=slow))


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"bandwidth": 0.0}, "a bandwidth of at least 1 byte/s"),
        ({"mtu": 52}, "an MTU of more than 52 bytes"),
        ({"chains": []}, "chains of the smallest messages"),
        ({"chains": PAIR.chains + PAIR.chains[:1]}, "each with another number of hops"),
        ({"exchange": [(65, 450e-6)]}, "an exchange of 64 bytes"),
        ({"arrived": PAIR.arrived[:1]}, "messages of 1 MiB and more that arrive after different times"),
        ({"arrived": [(nbytes, 1.0) for nbytes in SIZES]}, "that arrive after different times"),
        ({"send_done": PAIR.send_done[:1]}, "sends of 4 MiB and more"),
        ({"arrived": PAIR.arrived[:2]}, "each with its arrival"),
        ({"at_once": PAIR.at_once[:1]}, "steps of different numbers of messages"),
        ({"crowds": [replace(PAIR.crowds[0], own=2 * [(24, 1e-3)])]}, "collectives of gloo's own"),
        ({"reduction": [(0, 1e-3)]}, "a reduction of at least 1 byte"),
    ],
)
def test_probes_that_lack_a_part_are_refused_with_its_name(changes: dict[str, Any], lacks: str) -> None:
    with pytest.raises(InputError, match=f"pair of hosts lack .*{lacks}.*; calibrate again"):
        fit_pair(replace(PAIR, **changes))


def test_a_calibration_with_a_pair_gives_a_cluster_its_terms_but_those_that_it_sets():
    line = FittedLine(2e-5, 1e-9, 0.0)
    measured = Calibration(2, 1, one_way=line, both_ways=line, reduction=line, pair=PAIR)
    cluster = simcomm.star(4, "50 Mbit/s", "5 us", None)
    found = cluster.calibrated_by(measured).transport
    assert found is not None
    assert found.tcp == fit_pair(PAIR).tcp
    set_here = replace(cluster, tcp_terms={"window": 1e6}).calibrated_by(measured).transport
    assert set_here is not None
    assert found.tcp is not None
    assert set_here.tcp == replace(found.tcp, window=1e6)
