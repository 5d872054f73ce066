"""Declare algorithms, find them by name or in a user's file, and pickle them."""

import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_python
from declared_programs import declared

import collectives
from collectives import InputError, find_algorithm, send
from collectives.catalogue import load_file
from collectives.schedule.build import build_schedule

MINE = """
from collections.abc import Iterator
from collectives import algorithm
from collectives.algorithms.naive import naive_all_reduce, naive_broadcast

@algorithm("all_reduce", chunks=1)
def mine(rank, world_size):
    yield from naive_all_reduce(rank, world_size)

@algorithm("broadcast", name="mine", chunks=1)
def my_broadcast(rank, world_size, root):
    yield from naive_broadcast(rank, world_size, root)

@algorithm("all_reduce", chunks=lambda world_size, slices: slices)
def sliced(rank, world_size, slices=3):
    for _ in range(slices):
        yield from ()
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def idle(rank, world_size):  # type: ignore[no-untyped-def]
    yield from ()


@pytest.mark.parametrize(
    ("name", "collective", "message"),
    [
        ("ring", None, r"unknown algorithm 'ring'; did you mean .*all_reduce/ring.* or FILE.py:NAME"),
        ("mine.toml", None, r"'mine.toml' is not a Python file; pass the name of an algorithm"),
        ("naive", "all_to_all", "all_to_all/naive was removed; use all_to_all/direct"),
        ("broadcast/naive", "all_reduce", "broadcast/naive is not an algorithm for all_reduce"),
    ],
)
def test_unknown_algorithm_is_rejected(name: str, collective: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    with pytest.raises(InputError, match=message):
        find_algorithm(name, collective, folder=tmp_path)


def test_program_with_wrong_arguments_is_rejected() -> None:
    with pytest.raises(
        InputError, match=r"broadcast/idle: the program must take the arguments \(rank, world_size, root\)"
    ):
        declared("broadcast", idle)


def chain(rank, world_size, slices=8):  # type: ignore[no-untyped-def]
    for chunk in range(slices):
        if rank < world_size - 1:
            yield send(rank + 1, chunk)


def test_declared_algorithm_has_the_stated_name_and_chunks() -> None:
    assert declared("all_reduce", idle).full_name == "all_reduce/idle"
    assert declared("all_reduce", idle, name="lazy").full_name == "all_reduce/lazy"
    assert (declared("all_reduce", idle).chunks(5), declared("all_reduce", idle).scratch(5)) == (5, 0)
    assert declared("all_reduce", idle, chunks=1).chunks(5) == 1
    sliced = declared("all_reduce", chain, chunks=lambda world_size, slices: slices)
    three = sliced.with_parameters(slices=3)
    assert (sliced.chunks(4), three.chunks(4), len(list(three.steps(0, 4)))) == (8, 3, 3)
    assert three.full_name == "all_reduce/chain[slices=3]"
    rule = declared("all_reduce", chain, chunks=lambda world_size: 2 * world_size).with_parameters(slices=3)
    assert rule.chunks(4) == 8


@pytest.mark.parametrize("count", [0, 2.5])
def test_invalid_chunk_count_is_rejected(count: object) -> None:
    wrong = declared("all_reduce", idle, chunks=lambda world_size: count)
    with pytest.raises(InputError, match=r"all_reduce/idle: the number of chunks must be an integer of at least 1"):
        wrong.chunks(4)


def test_too_many_chunks_are_rejected() -> None:
    wrong = declared("all_reduce", idle, chunks=10**30, scratch=10**10)
    with pytest.raises(InputError, match=r"all_reduce/idle: the number of chunks must be at most 1,000,000,000"):
        wrong.chunks(4)
    with pytest.raises(InputError, match=r"the number of scratch chunks must be at most 1,000,000"):
        wrong.scratch(4)


@pytest.mark.parametrize("rule", [lambda world_size: 1 // (world_size - 2), sys.exit])
def test_chunk_function_that_raises_is_reported_with_world_size(rule: Callable[[int], int]) -> None:
    wrong = declared("all_reduce", idle, chunks=lambda world_size: rule(world_size))
    message = "idle, world size 2: the function that counts chunks raised (ZeroDivisionError|SystemExit: 2)"
    with pytest.raises(InputError, match=message):
        wrong.chunks(2)


def test_unknown_parameter_is_rejected() -> None:
    with pytest.raises(InputError, match="all_reduce/chain has no parameter 'slice'; it has: slices"):
        declared("all_reduce", chain).with_parameters(slice=3)


def test_parameter_without_value_is_rejected() -> None:
    def grouped(rank, world_size, gpus):  # type: ignore[no-untyped-def]
        yield from ()

    needy = declared("all_reduce", grouped)
    with pytest.raises(InputError, match="all_reduce/grouped requires its parameter 'gpus'"):
        needy.steps(0, 4)
    assert list(needy.with_parameters(gpus=2).steps(0, 4)) == []


def test_algorithm_file_is_found_relative_to_a_folder(mine: Path) -> None:
    names = ["all_reduce/mine", "broadcast/mine", "all_reduce/sliced"]
    assert [member.full_name for member in load_file(mine)] == names
    member = find_algorithm("mine.py:sliced", "all_reduce", folder=mine.parent)
    assert (member.full_name, member.source, member.chunks(2)) == ("all_reduce/sliced", mine, 3)


def test_collective_or_function_name_selects_among_equal_names(mine: Path) -> None:
    assert find_algorithm(f"{mine}:mine", "broadcast").full_name == "broadcast/mine"
    assert find_algorithm(f"{mine}:broadcast/mine").full_name == "broadcast/mine"
    assert find_algorithm(f"{mine}:my_broadcast").full_name == "broadcast/mine"


def test_ambiguous_file_reference_is_rejected(mine: Path) -> None:
    with pytest.raises(InputError, match=r"several algorithms match; pass FILE\.py:NAME, where NAME is one of"):
        find_algorithm(f"{mine}:mine")
    with pytest.raises(InputError, match=r"no algorithm matches; .* broadcast/mine, all_reduce/sliced"):
        find_algorithm(f"{mine}:minne")
    with pytest.raises(InputError, match="all_reduce/sliced is not an algorithm for broadcast"):
        find_algorithm(f"{mine}:sliced", "broadcast")


HEAD = "from collectives import algorithm\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", r'wrong.py: contains no algorithm; decorate a generator function with @algorithm\("all'),
        ("from collectives.algorithms.ring import ring_all_reduce\n", "wrong.py: contains no algorithm"),
        ("def (:\n", r"wrong.py: SyntaxError: .* \(line 1 of wrong.py\)"),
        ("import no_such_module\n", r"wrong.py: ModuleNotFoundError: .*no_such_module.* \(line 1 of wrong.py\)"),
        ("import sys\nsys.exit(3)\n", r"wrong.py: SystemExit: 3 \(line 2 of wrong.py\)"),
        (f"{HEAD}@algorithm('all_reduc')\ndef a(rank, world_size): ...\n", r"unknown collective .* \(line 2 of"),
        (
            HEAD + "".join(f"@algorithm('reduce', name='a')\ndef {f}(rank, world_size, root): ...\n" for f in "bc"),
            r"wrong.py: reduce/a is declared 2 times; use a different name for each",
        ),
    ],
)
def test_invalid_algorithm_file_is_rejected_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_file(path)


def test_missing_or_non_python_algorithm_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_file(tmp_path / "absent.py")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="not a Python file"):
        load_file(tmp_path / "notes.txt")


def test_pickled_user_algorithm_outlives_its_file(mine: Path, tmp_path: Path) -> None:
    original, pickled = find_algorithm(f"{mine}:my_broadcast"), tmp_path / "algorithm.pickle"
    programs = build_schedule(original, 4).programs
    pickled.write_bytes(pickle.dumps(original))
    sliced = pickle.dumps(find_algorithm(f"{mine}:sliced").with_parameters(slices=5))
    assert pickle.loads(sliced).chunks(2) == 5
    mine.unlink()
    again = pickle.loads(pickled.read_bytes())
    assert (again.full_name, again.source) == (original.full_name, mine)
    assert build_schedule(again, 4).programs == programs
    done = run_python("-c", f"import pickle; print(pickle.load(open({str(pickled)!r}, 'rb')).full_name)")
    assert done.stdout.strip() == "broadcast/mine"


def test_removed_user_algorithm_is_reported(mine: Path) -> None:
    pickled = pickle.dumps(find_algorithm(f"{mine}:sliced"))
    mine.write_text(MINE.replace("def sliced", "def renamed"))
    again = pickle.loads(pickled)
    with pytest.raises(InputError, match=r"mine.py: no longer declares all_reduce/sliced"):
        again.channels(0, 2)


def test_program_that_returns_none_has_no_steps() -> None:
    def empty(rank, world_size):  # type: ignore[no-untyped-def]
        ...

    assert list(declared("all_reduce", empty).steps(0, 2)) == []


def test_exported_names_have_docstrings_with_examples() -> None:
    """Exceptions are raised in other examples, programs yield operations, and ``build_schedule`` shows a schedule."""
    assert sorted(collectives.__all__) == collectives.__all__
    for name in collectives.__all__:
        exported = getattr(collectives, name)
        is_error = isinstance(exported, type) and issubclass(exported, Exception)
        needs_example = not is_error and name not in ("Kind", "Operation", "Schedule")
        assert (">>> " if needs_example else "") in (inspect.getdoc(exported) or pytest.fail(name)), name
        assert exported.__module__.startswith("collectives.")
