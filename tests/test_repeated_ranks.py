"""A recording of some ranks made into one of all."""

import pytest

import simcomm
from collectives.errors import InputError
from collectives.records.recording import Recording
from collectives.records.recording_builder import CollectiveCall, RecordingBuilder
from simcomm.recorded.repeated_ranks import find_models, repeat_ranks, widen
from simcomm.recorded.replay import replay

TENSOR = [(0, 1), (2, 3), (4, 5), (6, 7)]
DATA = [(0, 2), (1, 3), (4, 6), (5, 7)]
MADE = [tuple(range(8)), *TENSOR, *DATA]


def record(ranks: list[int]) -> Recording:
    """Two stages of four ranks each, that reduce among two and two, and send from stage to stage."""
    builder = RecordingBuilder("pipeline.py", 8)
    for rank in ranks:
        stage = rank // 4
        for step, (groups, name) in enumerate([(TENSOR, "tensor"), (DATA, "data"), (TENSOR, "tensor")]):
            group = next(one for one in groups if rank in one)
            what = CollectiveCall("all_reduce", group, 1000 * (stage + 1), group=name)
            call = builder.collective(rank, (name, group, step), what)
            builder.post(rank, call, seconds=1e-4 * (stage + 1))
            builder.wait(rank, call)
        half = builder.recv if stage else builder.send
        message = half(rank, (rank + 4) % 8, 4096, key=("m", rank % 4))
        builder.post(rank, message)
        builder.wait(rank, message)
        builder.compute(rank, 1e-3)
    return builder.recording()


def test_few_ranks_stand_for_all() -> None:
    whole, few = record([*range(8)]), repeat_ranks(record([0, 4]), find_models([0, 4], 8), MADE)
    assert len(few.calls) == len(whole.calls) and set(few.groups) == set(whole.groups)
    cluster = simcomm.star(8, "8 Gbit/s", "5 us")
    found, wanted = replay(few, cluster), replay(whole, cluster)
    assert found.finished.tolist() == wanted.finished.tolist()
    assert few.computed().tolist() == whole.computed().tolist()


def test_a_rank_without_a_group_like_its_models_is_refused() -> None:
    with pytest.raises(InputError, match=r"rank 1 is in no group like \[0, 2\]; let it run too, by --only"):
        repeat_ranks(record([0, 4]), find_models([0, 4], 8), [tuple(range(8)), (0, 1), (4, 5)])


def record_data_parallel(ranks: int, verb: str = "all_reduce") -> Recording:
    """Return three steps of ranks that each give as much to a collective, and first gather a number of each."""
    builder, whole = RecordingBuilder("train.py", ranks, where="gloo"), tuple(range(ranks))
    calls = [CollectiveCall("all_gather", whole, 9 * ranks)] + 3 * [CollectiveCall(verb, whole, 250_000)]
    for rank in range(ranks):
        for step, what in enumerate(calls):
            call = builder.collective(rank, step, what)
            builder.post(rank, call, seconds=1e-3 * (1 + rank % 2))
            builder.wait(rank, call, took=1e-3)
    return builder.recording()


def test_a_recording_of_two_ranks_is_widened_to_one_of_eight() -> None:
    cluster = simcomm.star(8, "8 Gbit/s", "5 us")
    wide, wanted = widen(record_data_parallel(2), 8), record_data_parallel(8)
    assert replay(wide, cluster).finished.tolist() == replay(wanted, cluster).finished.tolist()
    assert wide.computed().tolist() == wanted.computed().tolist() and not wide.entries.took.any()
    assert wide.notes == ("ranks 2 to 7 do what ranks 0 to 1 did, in turn",)


@pytest.mark.parametrize(
    ("recording", "ranks", "message"),
    [
        (record_data_parallel(2), 7, "ranks is 7, and the recording is of 2; give a multiple of that"),
        (
            record_data_parallel(2, "reduce_scatter"),
            8,
            "calls of reduce_scatter, which on more ranks",
        ),
        (record([*range(8)]), 16, "calls of send and recv, which on more ranks"),
    ],
)
def test_what_cannot_be_widened_is_refused(recording: Recording, ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        widen(recording, ranks)
