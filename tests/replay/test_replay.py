"""Replays of recordings match runs of single collectives, and the reference engine."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_cases import Live, recordings

import simcomm
from collectives.catalogue import library
from collectives.costs.message_classes import EXCHANGE
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.records.calibration import Calibration, FittedLine, MessageCurve
from collectives.transport import Transport
from replay.recording import Recording, SourceLine
from replay.recording_builder import RecordedCollective, RecordingBuilder
from replay.simulation.figures import describe_stuck
from replay.simulation.repeated_ranks import find_models, repeat_ranks, widen
from replay.simulation.replay import Replayer, replay
from replay.simulation.traces import make_trace
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import Faults, Jitter, LinkFault, RankFault
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.descriptions import describe_preset

COSTLY = Transport("costly", overhead=3e-6, goodput=0.9, gamma=1e-10)
TREE = replace(simcomm.two_level_tree(4, 2, "25 Gbit/s", "2 us", 4.0), transport=COSTLY)


def one_collective(verb: str, ranks: int, elements: int, op: str = "sum", meanwhile: float = 0.0) -> Recording:
    """Return a recording of ranks that post a collective, compute for ``meanwhile`` seconds, and wait for it."""
    builder = RecordingBuilder("one.py", ranks)
    collective = RecordedCollective(verb, tuple(range(ranks)), elements, op=op)
    for rank in range(ranks):
        call = builder.collective(rank, "only", collective)
        builder.post(rank, call)
        builder.wait(rank, call, meanwhile)
    return builder.recording()


@pytest.mark.parametrize("name", library())
def test_replayed_collective_has_the_times_of_its_simulation(name: str) -> None:
    algorithm, op = library()[name], "mean" if library()[name].spec.reduces else None
    alone = simcomm.run(name, TREE, nbytes=1 << 20, op=op, engine="compiled")
    elements = (1 << 18) // 8 * 8
    recording = one_collective(algorithm.spec.name, 8, elements, op or "sum")
    run = replay(recording, TREE, {algorithm.spec.name: algorithm.label})
    assert run.elapsed == alone.elapsed
    ours, theirs = make_trace(run).messages, alone.messages
    assert len(ours) == len(theirs)
    assert ours.end.tolist() == theirs.end.tolist()
    assert ours.begin.tolist() == theirs.begin.tolist()
    assert [message.route for message in ours][:3] == [message.route for message in theirs][:3]
    assert run.elapsed == pytest.approx(simcomm.run(name, TREE, nbytes=1 << 20, op=op).elapsed, rel=1e-12)


def calibration(nbytes_per_s: float, cores: int = 2) -> Calibration:
    """Return a calibration of two processes whose times are proportional to the bytes of messages."""
    line, size = FittedLine(0.0, 1 / nbytes_per_s, 0.0), 1 << 30
    message_classes = [MessageCurve(EXCHANGE, 1, reduces, False, [(1, 1 / nbytes_per_s), (size, size / nbytes_per_s)])
            for reduces in (False, True)]  # fmt: skip
    known = Calibration(2, 1, one_way=line, both_ways=line, reduction=line, message_classes=message_classes)
    return replace(known, environment=known.environment | {"cores": cores})


def test_replay_adds_copy_times_to_gloo_all_gather_and_scatter() -> None:
    nbytes = 1 << 20

    def elapsed(verb: str, algorithms: dict[str, str]) -> float:
        recording = one_collective(verb, 2, nbytes // 4)
        return replay(recording, simcomm.this_machine(2), algorithms, calibration=calibration(1e9)).elapsed

    copies = 1.5 * nbytes * 1e-9
    assert elapsed("all_gather", {}) == pytest.approx(elapsed("all_gather", {"all_gather": "ring"}) + copies)
    assert elapsed("reduce_scatter", {}) == pytest.approx(elapsed("all_reduce", {}) + copies)


def test_messages_delay_compute_only_when_all_cores_are_busy() -> None:
    def elapsed(meanwhile: float, cores: int, where: str = "virtual") -> float:
        recording = replace(one_collective("all_reduce", 2, 1 << 20, meanwhile=meanwhile), where=where)
        return replay(recording, simcomm.this_machine(2), calibration=calibration(1e9, cores)).elapsed

    alone = elapsed(0.0, cores=2)
    assert alone == elapsed(0.0, cores=8) == pytest.approx((1 << 22) * 1e-9)  # two messages of half of it
    assert elapsed(0.1, cores=8) == pytest.approx(0.1)
    assert elapsed(0.1, cores=2) == pytest.approx(0.1 + alone)
    assert elapsed(0.1, cores=2, where="gloo") == pytest.approx(0.1)  # measured with the messages' share


def clusters(ranks: int) -> list[Cluster]:
    star = simcomm.star(ranks, "10 Gbit/s", "5 us")
    around = simcomm.ring(ranks, "10 Gbit/s", "1 us")
    return [star, replace(star, transport=COSTLY), replace(around, transport=COSTLY)]


FAULT_CASES = [
    Faults(),
    Faults(ranks=(RankFault(0, slowdown=2.5),)),
    Faults(links=(LinkFault(("h0", "s0"), 0.25),)),
    Faults(links=(LinkFault(("h0", "s0"), 0.0, at=1e-4, lasting=2e-4),)),
    Faults(messages=Jitter("uniform", 1e-5), compute=Jitter("uniform", 0.3), seed=7),
    Faults(ranks=(RankFault(1, fails_at=2e-4),)),
]


@settings(max_examples=60, deadline=None)
@given(recordings(), st.sampled_from(FAULT_CASES), st.integers(0, 2))
def test_replay_matches_reference_engine(drawn: tuple[Recording, dict[str, str]], faults: Faults, at: int) -> None:
    recording, chosen = drawn
    is_ring = at == 2  # without the switch that the faults name
    check_equal(recording, chosen, clusters(recording.world_size)[at], Faults() if is_ring else faults)


def check_equal(recording: Recording, chosen: dict[str, str], cluster: Cluster, faults: Faults) -> None:
    run = replay(recording, cluster, chosen, faults=faults)
    live = Live(recording, cluster, chosen, faults)
    np.testing.assert_allclose(run.finished_streams, live.finished, rtol=1e-9)
    if not run.is_complete:
        return
    last = max(live.finished)
    ours = {(m.collective, m.src, m.dst, m.channel, m.step, m.chunk): m for m in make_trace(run).messages}
    for message in live.simulation.messages:
        name = message.collective, message.src, message.dst, message.channel, message.step, message.chunk
        assert (ours[name].begin, ours[name].end) == pytest.approx((message.begin, message.end), rel=1e-9)
    if run.elapsed <= last * (1 + 1e-9):
        assert len(ours) == len(live.simulation.messages)


def test_hanging_ranks_are_reported_with_their_lines() -> None:
    builder = RecordingBuilder("hang.py", 3)
    collective, line = RecordedCollective("all_reduce", (0, 1, 2), 100), SourceLine("hang.py", 7)
    for rank in range(2):
        call = builder.collective(rank, 0, collective, location=line)
        builder.post(rank, call)
        builder.wait(rank, call)
    send = builder.send(2, 0, 64, key="lost", location=SourceLine("hang.py", 9))
    builder.post(2, send)
    builder.wait(2, send)
    run = replay(builder.recording(), simcomm.star(3, "10 Gbit/s", "5 us"))
    assert not run.is_complete
    assert describe_stuck(run) == [
        "ranks 0, 1 hang in all_reduce of 400 bytes in group 'world' at hang.py:7: never reached by rank 2 "
        "(its last call: send to rank 0 of 64 bytes, tag 0 at hang.py:9)",
        "rank 2 hangs in send to rank 0 of 64 bytes, tag 0 at hang.py:9: rank 0 never receives it "
        "(its last call: all_reduce of 400 bytes in group 'world' at hang.py:7)",
    ]
    assert {operation.rank for operation in make_trace(run).unfinished} == {0, 1, 2}
    circle = RecordingBuilder("circle.py", 2)
    for rank in range(2):
        other = 1 - rank
        for call in (circle.recv(rank, other, 8, key=(other, rank)), circle.send(rank, other, 8, key=(rank, other))):
            circle.post(rank, call)
            circle.wait(rank, call)
    run = replay(circle.recording(), simcomm.star(2, "10 Gbit/s", "5 us"))
    assert "rank 1 has not reached send to rank 0" in describe_stuck(run)[0]


def ddp(ranks: int, buckets: int = 3) -> Recording:
    """Return a recording of buckets that are reduced during backward, in a communicator that runs calls in order."""
    builder, group = RecordingBuilder("ddp.py", ranks), tuple(range(ranks))
    for rank in range(ranks):
        builder.begin(rank, "forward", 4)
        builder.end(rank, "forward", 4, seconds=2e-3)
        builder.begin(rank, "backward", 4)
        calls = []
        for bucket in range(buckets):
            collective = RecordedCollective("all_reduce", group, 1 << 20)
            calls.append(builder.collective(rank, bucket, collective, line="world"))
            builder.post(rank, calls[-1], seconds=1e-3)
        for call in calls:
            builder.wait(rank, call)
        builder.end(rank, "backward", 4)
        builder.compute(rank, 5e-4)
    return builder.recording()


def test_compute_spans_have_the_names_of_recorded_marks() -> None:
    trace = make_trace(replay(ddp(4), simcomm.star(4, "10 Gbit/s", "5 us")))
    spans = [(span.name, span.step, round(span.begin, 6), round(span.end, 6)) for span in trace.spans if span.rank == 2]
    assert spans[:4] == [
        ("forward", 4, 0.0, 2e-3), ("backward", 4, 2e-3, 3e-3), ("backward", 4, 3e-3, 4e-3), ("backward", 4, 4e-3, 5e-3)
    ]  # fmt: skip
    assert spans[4][0] == "compute"
    seconds = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), nbytes=4 << 20).elapsed
    assert trace.elapsed == pytest.approx(3e-3 + 3 * seconds + 5e-4)


def test_replay_takes_the_time_of_nccl_or_the_chosen_algorithm() -> None:
    dgx = nccl_cluster(describe_preset("dgx-h100", 1, 8))
    alone = simcomm.run(nccl("all_reduce"), dgx, nbytes=4 << 20).elapsed
    run = replay(one_collective("all_reduce", 8, 1 << 20), dgx)
    assert run.elapsed == alone
    assert replay(ddp(8), dgx).elapsed == pytest.approx(5e-3 + alone + 5e-4)
    ring = replay(one_collective("all_reduce", 8, 1 << 20), dgx, {"all_reduce": "ring"})
    assert ring.elapsed == simcomm.run("all_reduce/ring", dgx, nbytes=4 << 20, engine="compiled").elapsed


def test_replay_rejects_a_wrong_rank_count_or_collective_name() -> None:
    with pytest.raises(InputError, match="3 ranks, but the recording has 4"):
        replay(ddp(4), simcomm.star(3, "1 Gbit/s", "5 us"))
    with pytest.raises(InputError, match="unknown collective"):
        replay(ddp(4), simcomm.star(4, "1 Gbit/s", "5 us"), {"allreduce": "ring"})


def test_chosen_algorithms_change_the_time_of_a_replay() -> None:
    replayer = Replayer(ddp(8))
    slow, fast = (replayer.on(simcomm.star(8, f"{rate} Gbit/s", "5 us")).elapsed for rate in (1, 100))
    tree, chosen = (
        replayer.on(simcomm.star(8, "1 Gbit/s", "5 us"), {"all_reduce": name}).elapsed for name in ("naive", "auto")
    )
    assert fast < slow < tree and chosen <= slow * (1 + 1e-9)
    run = replay(ddp(3), simcomm.star(3, "1 Gbit/s", "5 us"), {"all_reduce": "torus[columns=2]"})
    assert any("all_reduce on 3 ranks uses ring" in note for note in run.carrier.notes)


TENSOR = [(0, 1), (2, 3), (4, 5), (6, 7)]
DATA = [(0, 2), (1, 3), (4, 6), (5, 7)]
MADE = [tuple(range(8)), *TENSOR, *DATA]


def record(ranks: list[int]) -> Recording:
    """Return a recording of two stages of four ranks: pairs of ranks reduce, and stage 0 sends to stage 1."""
    builder = RecordingBuilder("pipeline.py", 8)
    for rank in ranks:
        stage = rank // 4
        for step, (groups, name) in enumerate([(TENSOR, "tensor"), (DATA, "data"), (TENSOR, "tensor")]):
            group = next(group for group in groups if rank in group)
            collective = RecordedCollective("all_reduce", group, 1000 * (stage + 1), group=name)
            call = builder.collective(rank, (name, group, step), collective)
            builder.post(rank, call, seconds=1e-4 * (stage + 1))
            builder.wait(rank, call)
        half = builder.recv if stage else builder.send
        message = half(rank, (rank + 4) % 8, 4096, key=("m", rank % 4))
        builder.post(rank, message)
        builder.wait(rank, message)
        builder.compute(rank, 1e-3)
        builder.compute(builder.stream(rank, "GPU"), 2e-3)
    return builder.recording()


def test_recording_of_two_repeated_ranks_matches_eight_ranks() -> None:
    full, few = record([*range(8)]), repeat_ranks(record([0, 4]), find_models([0, 4], 8), MADE)
    assert len(few.calls) == len(full.calls) and set(few.groups) == set(full.groups)
    cluster = simcomm.star(8, "8 Gbit/s", "5 us")
    run, wanted = replay(few, cluster), replay(full, cluster)
    assert run.finished.tolist() == wanted.finished.tolist()
    assert few.computed().tolist() == full.computed().tolist()
    assert run.busy.tolist() == wanted.busy.tolist()


def test_repeating_a_rank_requires_a_corresponding_group() -> None:
    with pytest.raises(InputError, match=r"no group of rank 1 corresponds to the group \[0, 2\]"):
        repeat_ranks(record([0, 4]), find_models([0, 4], 8), [tuple(range(8)), (0, 1), (4, 5)])


def record_data_parallel(ranks: int, verb: str = "all_reduce") -> Recording:
    """Return a recording of three equal collectives on all ranks, after an all_gather of nine elements per rank."""
    builder, everyone = RecordingBuilder("train.py", ranks, where="gloo"), tuple(range(ranks))
    calls = [RecordedCollective("all_gather", everyone, 9 * ranks)] + 3 * [RecordedCollective(verb, everyone, 250_000)]
    for rank in range(ranks):
        for step, collective in enumerate(calls):
            call = builder.collective(rank, step, collective)
            builder.post(rank, call, seconds=1e-3 * (1 + rank % 2))
            builder.wait(rank, call, took=1e-3)
    return builder.recording()


def test_recording_widened_to_eight_ranks_matches_eight_ranks() -> None:
    cluster = simcomm.star(8, "8 Gbit/s", "5 us")
    wide, wanted = widen(record_data_parallel(2), 8), record_data_parallel(8)
    assert replay(wide, cluster).finished.tolist() == replay(wanted, cluster).finished.tolist()
    assert wide.computed().tolist() == wanted.computed().tolist() and not wide.entries.took.any()
    assert wide.notes == ("ranks 2 to 7 repeat ranks 0 to 1 cyclically",)


@pytest.mark.parametrize(
    ("recording", "ranks", "message"),
    [
        (record_data_parallel(2), 7, "ranks must be a multiple of the recording's 2, not 7"),
        (record_data_parallel(2, "reduce_scatter"), 8, "calls of reduce_scatter, whose sizes or peers depend"),
        (record([*range(8)]), 16, "calls of send and recv, whose sizes or peers depend"),
    ],
)
def test_widen_rejects_unsuitable_rank_counts_and_calls(recording: Recording, ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        widen(recording, ranks)
