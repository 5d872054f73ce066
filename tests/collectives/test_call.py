"""Check calls of collectives and the rejection of invalid arguments."""

import re

import numpy as np
import pytest
import torch

import realcomm
import simcomm
import viz
from collectives import InputError, build_schedule, find_algorithm, verify
from collectives.call import CollectiveCall, make_call
from collectives.declaration import nccl
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from realcomm.functions.tensor_call import check_splits
from simcomm.selection import choose

STAR = simcomm.star(4, "10 Gbit/s", "5 us")
RING = find_algorithm("all_reduce/ring")
FOURS = [np.ones(4) for _ in range(4)]

BOTH = pytest.mark.parametrize("run", [simcomm.run, realcomm.run])
REJECTED_BY_RUN = [  # algorithm, arguments, and the message
    (RING, {"nbytes": "8 megs"}, "'8 megs' is not a size; write a number and one of"),
    (RING, {"nbytes": None}, "nbytes must be a non-negative integer or text such as '1 MiB' (or pass buffers), not N"),
    (RING, {"nbytes": 8, "dtype": torch.float32}, "dtype must be a string such as 'float32', not torch.float32"),
    (RING, {"nbytes": 8, "op": 3}, "unknown op 3"),
    (RING, {"buffers": 3}, "one numpy array per rank, not 3"),
    ("reduce/naive", {"nbytes": 8, "root": "0"}, "root must be an integer, not '0'"),
    ("broadcast/naive", {"nbytes": 8, "op": "max"}, "broadcast/naive: broadcast does not reduce; remove op"),
    (RING, {"nbytes": 8, "root": 0}, "all_reduce/ring: all_reduce does not have a root; remove root"),
    (RING, {"nbytes": 64, "buffers": FOURS}, "nbytes is 64, but the buffers have 32; remove nbytes"),
    (RING, {"dtype": "float32", "buffers": FOURS}, "dtype is float32, but the buffers have float64"),
    (RING, {"nbytes": 8, "cluster": "this-machine"}, "this_machine(2), not 'this-machine'"),
    (7, {"nbytes": 8}, "algorithm must be an Algorithm or a name such as 'all_reduce/ring', not 7"),
    (print, {"nbytes": 8}, "not <built-in function print>; declare the function with @algorithm"),
    *(
        (CollectiveCall(RING, 4), given, f"{next(iter(given))} must not be passed with a CollectiveCall")
        for given in ({"nbytes": 16}, {"dtype": "float32"}, {"op": "sum"}, {"root": 0})
    ),
    (CollectiveCall("all_reduce/ring", 4), {}, "algorithm must be an Algorithm"),
    (CollectiveCall(RING, "4"), {}, "elements must be a non-negative integer, not '4'"),
    (CollectiveCall(find_algorithm("reduce/naive"), 4, root=4), {}, "root must be a rank from 0 to 3, not 4"),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("algorithm", "given", "message"), REJECTED_BY_RUN)
def test_run_rejects_invalid_and_unused_arguments(run, algorithm, given: dict, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        run(algorithm, **{"cluster": STAR, **given})


def read_only(buffer: np.ndarray) -> np.ndarray:
    buffer.flags.writeable = False
    return buffer


STRIDES = np.lib.stride_tricks.as_strided
ODD_BUFFERS = {  # message to invalid buffer of rank 2
    "is read-only; pass a copy": read_only,
    "has the unsupported dtype '>f8'": lambda buffer: buffer.astype(">f8"),
    "has 4 elements of float32; buffers[0] has 4 of float64": lambda buffer: buffer.astype(np.float32),
    "has 3 elements of float64; buffers[0] has 4 of": lambda buffer: buffer[:3],
    "must have one dimension, not the shape (2, 2)": lambda buffer: buffer.reshape(2, 2),
    "is a Tensor; pass a numpy array for each rank": torch.from_numpy,
    "is a MaskedArray; pass numpy.asarray(buffer)": np.ma.MaskedArray,
    "has elements that share memory; pass a copy": lambda buffer: STRIDES(buffer, (4,), (0,)),
}


@BOTH
@pytest.mark.parametrize("message", ODD_BUFFERS)
def test_run_changes_no_buffer_when_one_is_invalid(run, message: str):
    buffers: list = [np.arange(4.0) + rank for rank in range(4)]
    before = [buffer.copy() for buffer in buffers]
    arrays = [*buffers[:2], ODD_BUFFERS[message](buffers[2]), buffers[3]]
    with pytest.raises(InputError, match=re.escape(f"all_reduce/ring: buffers[2] {message}")):
        run("all_reduce/ring", STAR, buffers=arrays)
    assert np.array_equal(buffers, before)


@BOTH
def test_run_rejects_buffers_that_share_memory(run):
    array, memory = np.ones(4), np.ones(10)
    for buffers in ([array] * 4, [memory[2 * rank : 2 * rank + 4] for rank in range(4)]):
        with pytest.raises(InputError, match=r"buffers\[0\] and buffers\[1\] share memory; pass a separate array"):
            run("all_reduce/ring", STAR, buffers=buffers)
    assert (array == 1).all() and (memory == 1).all()


def test_run_accepts_interleaved_views_and_memory_maps(tmp_path):
    columns = np.arange(12.0).reshape(3, 4)
    columns[0, 1] = np.nan
    total = columns.sum(axis=1)
    simcomm.run("all_reduce/ring", STAR, buffers=[columns[::-1, rank] for rank in range(4)])
    assert np.array_equal(columns, np.tile(total[:, None], 4), equal_nan=True)
    mapped = np.memmap(tmp_path / "memory", np.float64, "w+", shape=(4, 3))
    mapped[:] = 1
    simcomm.run("all_reduce/ring", STAR, buffers=mapped)
    assert (np.fromfile(tmp_path / "memory") == 4).all()


def test_run_and_choose_accept_a_size_with_a_unit():
    assert simcomm.run("all_reduce/ring", STAR, "1 MiB") == simcomm.run("all_reduce/ring", STAR, 1 << 20)
    assert choose("all_reduce", STAR, "1 MiB") == choose("all_reduce", STAR, 1 << 20)
    arrays = [np.ones(128) for _ in range(4)]
    assert simcomm.run("all_reduce/ring", STAR, "1 KiB", buffers=arrays, dtype="float64").facts["nbytes"] == 1024


ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Training("ring"), "gradient_sync must be an Algorithm"),
        (lambda: Training(RING, model="alexnet"), "unknown model 'alexnet'; choose one of resnet18"),
        (lambda: Training(RING, batch_size=0), "batch_size must be a positive integer, not 0"),
        (lambda: Training(RING, learning_rate=0), "learning_rate must be a positive number, not 0"),
        (lambda: Training(RING, scale_learning_rate="no"), "must be True or False, or one of linear, sqrt, not 'no'"),
        (lambda: Training(RING, data_folder=3), "data_folder must be the name of a file or directory, not 3"),
        (lambda: Training(RING, compute=(0.1, 0.2, 0.05)), "compute must be ComputePhases"),
        (lambda: Transport("test", gamma=float("nan")), "must be a non-negative number of seconds per byte, not nan"),
        (lambda: Transport("test", goodput=1.5), "goodput must be a share of the line rate in (0, 1], not 1.5"),
        *(
            (lambda phases=phases: ComputePhases(*phases), "must be a non-negative number of seconds")
            for seconds in (-0.1, "1 ms", float("nan"), float("inf"))
            for phases in ((seconds, 0, 0), (0, seconds, 0), (0, 0, seconds))
        ),
        *(
            (lambda call=call, size=size: call(size), f"world_size must be a positive integer, not {size!r}")
            for size in ("4", True, 0)
            for call in (
                lambda size: verify(RING, size), RING.chunks, RING.scratch, lambda size: RING.channels(0, size),
                lambda size: make_call(RING, size, 1024),
            )
        ),
        *(
            (lambda call=call, value=value: call(value), "algorithm must be an Algorithm or a name such as ")
            for value in (print, None)
            for call in (lambda value: verify(value, 4), find_algorithm, lambda value: build_schedule(value, 4))
        ),
        (lambda: verify("broadcast/naive", 4, root="1"), "root must be an integer, not '1'"),
        (lambda: simcomm.run("all_reduce/ring", STAR, 64, faults=3), "faults must be a simcomm.Faults, not 3"),
        (lambda: simcomm.run("all_reduce/ring", STAR, 64, calibration=3), "calibration must be a Calibration"),
        (lambda: choose(3, STAR, 64), "unknown collective 3; "),
        (lambda: simcomm.from_links(3), "links must be a list of"),
        (lambda: simcomm.with_usable_bandwidths(3), "cluster must be a cluster such as simcomm"),
        (lambda: simcomm.shortest(3), "graph must be a networkx graph, not 3"),
        (lambda: viz.topology_figure(3, ["h0"], "Three"), "graph must be a networkx graph, "),
        (lambda: realcomm.Executor(3, 0, 2), "call must be a collectives.call.CollectiveCall, not 3"),
        (lambda: check_splits(3, "output_split_sizes", ONES, 2), "output_split_sizes must be a list of sizes, "),
        (lambda: realcomm.launch(3, 2), "worker must be a function of (rank, world_size), not 3"),
    ],
)  # fmt: skip
def test_argument_type_error_names_the_expected_type(call, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        call()


@pytest.mark.parametrize("train", [simcomm.train, realcomm.train])
def test_train_rejects_wrong_types(train):
    with pytest.raises(InputError, match=r"training must be a collectives\.Training, not 'resnet18'"):
        train("resnet18", STAR)
    with pytest.raises(InputError, match=r"cluster must be a cluster .* not 4"):
        train(Training(RING), 4)
    for steps in ("3", 2.0, 0, True):
        with pytest.raises(InputError, match=f"steps must be a positive integer, not {steps!r}"):
            train(Training(RING), STAR, steps=steps)


def test_run_rejects_buffers_of_another_length_or_dtype():
    call = CollectiveCall(RING, 4, op="max")
    buffers = [np.full(4, rank, np.float32) for rank in range(4)]
    simcomm.run(call, STAR, buffers=buffers)
    assert all((buffer == 3).all() for buffer in buffers)
    for wrong in (np.zeros(5, np.float32), np.zeros(4)):
        with pytest.raises(InputError, match="buffers must have 4 elements of float32"):
            simcomm.run(call, STAR, buffers=[wrong.copy() for _ in range(4)])


def test_call_with_another_algorithm_keeps_its_element_count():
    call = make_call("all_to_all/direct", 4, 1000)
    assert call.elements == 248
    sixteen = find_algorithm("all_reduce/ring")
    assert call.with_algorithm(sixteen, 4).elements == 248


@pytest.mark.parametrize(
    ("collective", "nbytes", "least", "reason"),
    [
        ("all_gather", 4, 8192, "an element for each rank"),
        ("reduce_scatter", 8191, 8192, "an element for each rank"),
        ("all_reduce", 3, 4, "one element"),
    ],
)
def test_size_too_small_for_nccl_is_rejected(collective: str, nbytes: int, least: int, reason: str) -> None:
    message = f"{collective}/nccl: the size must be at least {least} bytes on 2048 ranks .{reason}., not {nbytes}"
    with pytest.raises(InputError, match=message):
        make_call(nccl(collective), 2048, nbytes)
    assert make_call(nccl(collective), 2048, least).nbytes == least
