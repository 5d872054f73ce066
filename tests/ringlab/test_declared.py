"""Algorithms that users declare in Python: where they are accepted, and the lines that their errors name."""

import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_arguments import recording

import realcomm
import replay
import ringlab
import simcomm
from collectives import (
    Algorithm,
    CollectiveCall,
    InputError,
    ProgramError,
    Training,
    algorithm,
    build_schedule,
    copy,
    find_algorithm,
    make_call,
    recv,
    recv_reduce,
    reduce,
    send,
    verify,
)
from collectives.catalogue import load_file
from collectives.symbolic_rank import ShiftedRank, VectorRank
from collectives.training.workload import ComputePhases
from simcomm.selection import choose

# mypy: allow-untyped-defs

STAR = simcomm.star(4, "10 Gbit/s", "5 us")
PHASES = ComputePhases(0.01, 0.02, 0.001)


@algorithm("all_reduce", name="ring", chunks=1)
def through_rank_0(rank, world_size, sends: int = 1):
    """Has the name of a library algorithm but sends other messages."""
    for peer in range(1, world_size):
        if rank == 0:
            yield recv_reduce(peer, 0)
        elif rank == peer:
            yield send(0, 0)
    for peer in range(1, world_size):
        if rank == 0:
            yield send(peer, 0)
        elif rank == peer:
            yield recv(0, 0)


def test_declared_function_is_an_algorithm_that_can_be_called() -> None:
    assert isinstance(through_rank_0, Algorithm)
    assert [len(step) for step in through_rank_0(0, 3) if isinstance(step, tuple)] == [5] * 4  # single operations
    assert str(inspect.signature(through_rank_0)) == "(rank, world_size, sends: int = 1)"
    assert (through_rank_0.__doc__ or "").startswith("Has the name of a library algorithm")
    assert through_rank_0.with_parameters(sends=2).label == "ring[sends=2]"

    def repeated(rank, world_size, times: int = 1):
        yield from [()] * times

    both = [algorithm(name, chunks=1)(repeated) for name in ("all_reduce", "barrier")]
    assert [algorithm.full_name for algorithm in both] == ["all_reduce/repeated", "barrier/repeated"]
    three = both[0].with_parameters(times=3)
    assert (len([*both[0](0, 2)]), len([*three(0, 2)]), len([*three(0, 2, times=2)])) == (1, 3, 2)


TAKES_ALGORITHMS: dict[str, Callable[[Algorithm], Any]] = {
    "simcomm.run": lambda algorithm: simcomm.run(algorithm, STAR, 1024).messages,
    "simcomm.train": lambda algorithm: simcomm.train(Training(algorithm, compute=PHASES), STAR, steps=1).messages,
    "simcomm.choose": lambda algorithm: choose("all_reduce", STAR, 1024, among=[algorithm]).algorithm is algorithm,
    "verify": lambda algorithm: verify(algorithm, 4).messages == 6,
    "find_algorithm": lambda algorithm: find_algorithm(algorithm, "all_reduce") is algorithm,
    "make_call": lambda algorithm: make_call(algorithm, 4, 1024).algorithm is algorithm,
    "CollectiveCall": lambda algorithm: simcomm.run(CollectiveCall(algorithm, 16), STAR).messages,
    "build_schedule": lambda algorithm: build_schedule(algorithm, 4).messages == 6,
    "replay.replay": lambda algorithm: (
        replay.replay(recording(), STAR.on_first(2), {"all_reduce": algorithm}).elapsed > 0.5
    ),
    "ringlab.check": lambda algorithm: ringlab.check(algorithm, [2, 3]).is_correct,
    "ringlab.load": lambda algorithm: (
        ringlab.load("star8", "collective.algorithms=['naive']", algorithm).predict().collectives[1]
    ),
    "Scenario.trace": lambda algorithm: ringlab.load("star8").trace(algorithm, "1 KiB").messages,
}


@pytest.mark.parametrize("name", TAKES_ALGORITHMS)
def test_algorithm_arguments_accept_a_declared_function(name: str) -> None:
    assert TAKES_ALGORITHMS[name](through_rank_0)


def test_animate_and_plot_accept_a_declared_function(tmp_path: Path) -> None:
    for suffix in ("png", "html"):
        assert ringlab.animate("star8", tmp_path / f"mine.{suffix}", through_rank_0, 1024).problem is None
    assert ringlab.plot("star8", "path", tmp_path / "path.png", through_rank_0, 1024).file


@pytest.mark.parametrize("run", [simcomm.run, realcomm.run])
def test_local_function_runs_as_an_algorithm(run) -> None:
    def local() -> Algorithm:
        @algorithm("broadcast", chunks=1)
        def chain(rank, world_size, root):
            place = (rank - root) % world_size
            if place:
                yield recv((rank - 1) % world_size, 0)
            if place < world_size - 1:
                yield send((rank + 1) % world_size, 0)

        return chain

    buffers = [np.full(6, rank, np.float32) for rank in range(3)]
    options = {"repetitions": 1} if run is realcomm.run else {}
    trace = run(
        local(),
        simcomm.this_machine(3) if run is realcomm.run else STAR.on_first(3),
        buffers=buffers,
        root=2,
        **options,
    )
    assert len(trace.messages) == 2 and all((buffer == 2).all() for buffer in buffers)


def test_choose_runs_a_user_algorithm_with_a_library_name() -> None:
    ring = find_algorithm("all_reduce/ring")
    assert len(simcomm.run(through_rank_0, STAR, 1024).messages) == 6 != len(simcomm.run(ring, STAR, 1024).messages)
    chosen = choose("all_reduce", STAR, 1 << 20, among=[through_rank_0]).seconds
    assert chosen == pytest.approx(simcomm.run(through_rank_0, STAR, 1 << 20).elapsed)
    assert chosen > 1.2 * choose("all_reduce", STAR, 1 << 20, among=[ring]).seconds
    assert pickle.loads(pickle.dumps(through_rank_0)).function is through_rank_0.function
    assert simcomm.run(through_rank_0, STAR, 1024).algorithm == ""


def test_pickle_rejects_a_local_program() -> None:
    @algorithm("all_reduce", chunks=1)
    def mine(rank, world_size):
        yield ()

    with pytest.raises(pickle.PicklingError, match="another process cannot import all_reduce/mine; define it in a mod"):
        pickle.dumps(mine)


@pytest.mark.parametrize(
    ("scenario", "changes", "message"),
    [
        ("star8", (), "star8.toml: duplicate algorithm name ring; pass another name= to @alg"),
        ("star8", ("collective.name=broadcast", "collective.algorithms=['naive']"), "not an algorithm for broad"),
        ("resnet34-cifar10", (), r"all_reduce/ring requires a \[collective\] table"),
    ],
)
def test_load_rejects_an_algorithm_that_the_scenario_cannot_use(scenario: str, changes: tuple[str, ...], message: str):
    with pytest.raises(InputError, match=message):
        ringlab.load(scenario, *changes, through_rank_0)


def test_undeclared_function_is_rejected_with_a_hint() -> None:
    def mine(rank, world_size):
        yield ()

    with pytest.raises(InputError, match=r"an Algorithm or a name .*; declare the function with @algorithm"):
        simcomm.run(mine, STAR, 1024)


MAKERS = dict.fromkeys((send, recv, recv_reduce), ("peer", "chunk", "count"))
MAKERS |= dict.fromkeys((copy, reduce), ("chunk", "into", "count"))
ARGUMENTS = [(make, argument) for make, arguments in MAKERS.items() for argument in arguments]


@pytest.mark.parametrize(("make", "argument"), ARGUMENTS)
@pytest.mark.parametrize("value", ["a", 1.0, 0.5, True, None, -1, [1], np.float32(1), np.int64(-1)])
def test_operation_rejects_a_bad_number_with_its_line(make: Callable[..., Any], argument: str, value: object) -> None:
    with pytest.raises(InputError) as failure:
        make(**(dict.fromkeys(MAKERS[make], 1) | {argument: value}))
    line = failure.traceback[0].lineno + 1
    wanted = f"{make.__name__}: {argument} must be an integer.*, not {re.escape(repr(value))}"
    assert re.fullmatch(rf"{wanted}.* \(line {line} of test_declared.py\)", str(failure.value))


@pytest.mark.parametrize(("make", "argument"), ARGUMENTS)
@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1)])
def test_operation_accepts_numpy_integers(make: Callable[..., Any], argument: str, value: int) -> None:
    made = make(**(dict.fromkeys(MAKERS[make], 1) | {argument: value}))
    assert made == make(**dict.fromkeys(MAKERS[make], 1)) and {type(number) for number in made[1:]} == {int}
    for rank in (ShiftedRank(4), VectorRank(np.array([0, 2]))):
        assert send(rank, 0).peer is rank


FAULTS = {
    "send('a', 0)": "send: peer must be an integer, not 'a'",
    "recv(1, 0, count=0)": "recv: count must be an integer of at least 1, not 0",
    "send(1 - rank, 1 / 2)": r"send: chunk must be an integer, not 0.5; divide with //",
    "{}['lost']": "the program fails with KeyError: 'lost'",
    "int('x')": "the program fails with ValueError: invalid literal",
    "deep(rank)": "the program fails with ZeroDivisionError",
    "None": "None is not an operation",
}
BODY = """\
from collectives import algorithm, recv, recv_reduce, send

def deep(rank):
    return send(1 // (rank - rank), 0)

@algorithm("all_reduce", chunks=1)
def wrong(rank, world_size):
    yield send(1 - rank, 0), recv_reduce(1 - rank, 0)
    if rank == 1:
        yield ()
        yield {fault}
"""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "Python"])
def test_failing_program_names_rank_step_and_line(fault: str, is_file: bool, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BODY.format(fault=fault))
    if is_file:
        (wrong,) = load_file(path)
    else:
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        wrong = names["wrong"]
    line = 4 if "deep" in fault else 11
    for call in (lambda: verify(wrong, 2), lambda: simcomm.run(wrong, STAR.on_first(2), 1024)):
        with pytest.raises(ProgramError) as failure:
            call()
        text = str(failure.value)
        assert text.startswith("all_reduce/wrong, world size 2, rank 1, step 2: ") and FAULTS[fault] in text
        assert text.endswith(f" (line {line} of mine.py)") and text.count("line") == 1


RULES = {  # a program, its line with the error, and the message
    "chunk rule": (
        "def rule(world_size):\n    return 8 // (world_size - 2)\n"
        "mine = algorithm('all_reduce', chunks=rule)(lambda rank, world_size: iter(()))", 3, "ZeroDivisionError: ",
    ),
    "channel": (
        "def fails():\n    yield ()\n    yield send('x', 0)\n"
        "mine = algorithm('all_reduce', chunks=2)(lambda rank, world_size: (iter([()]), fails()))",
        4, "rank 0, channel 1, step 1: send: ",
    ),
    "group": (
        "def pair():\n    yield send(1, 0)\n    yield send(1, -2)\n"
        "mine = algorithm('all_reduce', chunks=1)(lambda rank, world_size: on_group(pair(), range(world_size)))",
        4, "step 1: send: chunk must be ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_invalid_operation_error_names_its_line(name: str) -> None:
    text, line, message = RULES[name]
    names: dict[str, Any] = {}
    exec(compile(f"from collectives import *\n{text}\n", "mine.py", "exec"), names)
    with pytest.raises(InputError, match=rf"\(line {line} of mine.py\)") as failure:
        verify(names["mine"], 2)
    assert message in str(failure.value)


SCRIPT = """\
import replay
import simcomm
from collectives import algorithm, recv, recv_reduce, send

@algorithm("all_reduce", chunks=1)
def mine(rank, world_size):
    yield send(1 - rank, 0), recv_reduce(1 - rank, 0)

if True:  # no guard: workers must not execute this file
    import realcomm
    print(realcomm.run(mine, simcomm.this_machine(2), 1024, repetitions=1).facts["wrong"])
"""


def test_script_without_main_guard_runs_its_algorithm(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("0.0\n", 0), done.stderr
