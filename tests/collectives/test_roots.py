"""Prove equivalent roots once, and every other root on its own."""

import json
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from command_line import Ringlab
from declared_programs import declared
from random_programs import as_algorithm, change, changed_at, draw_program, is_right_when_run, programs_of

from collectives import Algorithm, InputError, Undefined, find_algorithm, library, recv, send, verify
from collectives.catalogue import load_file
from collectives.proof.roots import root_classes
from collectives.schedule.build import build_schedule
from collectives.step import Program
from collectives.verdict import prove

# mypy: allow-untyped-defs

ROOTED = sorted(name for name, algorithm in library().items() if algorithm.spec.rooted)
RELATIVE = sorted(
    set(ROOTED) - {"scatter/binomial", "gather/binomial"}
)  # these divide runs that wrap around the buffer
FILE = """
from collectives import algorithm, recv, send


@algorithm("broadcast", chunks=1)
def chain(rank, world_size, root):
    position = (rank - root) % world_size
    if {wrong}:
        return
    if position:
        yield recv((rank - 1) % world_size, 0)
    if position < world_size - 1:
        yield send((rank + 1) % world_size, 0)
"""


def chain_file(folder: Path, wrong: str) -> Path:
    file = folder / "mine.py"
    file.write_text(FILE.format(wrong=wrong), encoding="utf-8")
    return file


@pytest.mark.parametrize("p", [1, 2, 3, 7, 12, 33])
@pytest.mark.parametrize("name", RELATIVE)
def test_roots_of_a_symmetric_program_form_one_class(name: str, p: int) -> None:
    assert root_classes(find_algorithm(name), p) == [[*range(p)]]


def test_equivalent_roots_are_proved_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    proved = Mock(side_effect=verify)
    monkeypatch.setattr("collectives.verdict.verify", proved)
    for algorithm in (find_algorithm("broadcast/chain"), load_file(chain_file(tmp_path, "False"))[0]):
        proved.reset_mock()
        assert prove(algorithm, [12, 20]).problem is None
        assert [call.args[1:] for call in proved.call_args_list] == [(12, 0), (20, 0)]


@pytest.mark.parametrize("root", range(12))
def test_program_wrong_at_one_root_is_found(root: int, tmp_path: Path) -> None:
    (algorithm,) = load_file(
        chain_file(tmp_path, f"world_size >= 10 and root == {root} and position == world_size - 1")
    )
    assert root_classes(algorithm, 12) == sorted([[root], [rank for rank in range(12) if rank != root]])
    verdict = prove(algorithm, [3, 9, 12])
    assert [report.world_size for report in verdict.reports] == [3, 9]
    assert verdict.counter_example is not None
    assert (verdict.counter_example["world_size"], verdict.counter_example["root"]) == (12, root)


def naive(rank, world_size, root) -> Program:
    for peer in range(world_size):
        if peer != root and rank in (root, peer):
            yield send(peer, 0) if rank == root else recv(root, 0)


def works(algorithm: Algorithm, p: int, root: int, seed: int) -> bool:
    try:
        build_schedule(algorithm, p, root)
    except InputError:
        return False
    return is_right_when_run(algorithm, p, root, seed)


SEEDS = [range(30), *(pytest.param(range(at, at + 200), marks=pytest.mark.slow) for at in range(30, 2030, 200))]


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_proof_finds_the_root_at_which_execution_fails(seeds: range) -> None:
    wrong = 0
    for seed in seeds:
        rng = Random(seed)
        p = rng.randint(2, 14)
        right = find_algorithm(rng.choice(ROOTED))
        if rng.random() < 0.5:
            programs, chunks = draw_program(rng, right.spec.name, p)
            right = as_algorithm(right.spec.name, lambda p, root, programs=programs: programs, chunks)
        at = rng.randrange(p)
        changed = change(rng, programs_of(right, p, at), right.chunks(p) + right.scratch(p))
        algorithm = changed_at(right, p, at, changed)
        failing = [root for root in range(p) if not works(algorithm, p, root, seed)]
        verdict = prove(algorithm, [p])
        assert failing == ([] if verdict.counter_example is None else [verdict.counter_example["root"]]), seed
        wrong += bool(failing)
    assert 0 < wrong < len(seeds)


def test_check_proves_a_reduction_for_every_root(ringlab: Ringlab) -> None:
    assert "proved for 1-12 ranks and every root." in ringlab("check", "reduce/chain", "--ranks", "1-12").out


DOUBLING = """
from collectives import Undefined, algorithm, recv_reduce, send


@algorithm("all_reduce", chunks=1)
def doubling(rank, world_size):
    if world_size & (world_size - 1):
        raise Undefined("only for powers of two")
    distance = 1
    while distance < world_size{wrong}:
        yield send(rank ^ distance, 0), recv_reduce(rank ^ distance, 0)
        distance *= 2
"""


RIGHT = "RIGHT  all_reduce/doubling: proved for"
NOWHERE = "UNDEFINED  all_reduce/doubling, world size 3: only for powers of"


@pytest.mark.parametrize(
    ("ranks", "wrong", "status", "undefined", "message"),
    [
        ("1-8", "", 0, [3, 5, 6, 7], f"{RIGHT} 1, 2, 4, 8 ranks. Not defined for 3, 5-7 ranks."),
        ("3,4", "", 0, [3], f"{RIGHT} 4 ranks. Not defined for 3 ranks."),
        ("1-8", " // 2", 1, [], "WRONG  all_reduce/doubling, world size 2"),
        ("3,5-7", "", 2, [3, 5, 6, 7], f"{NOWHERE} two (line 8 of doubling.py). Not defined for 3, 5-7 ranks."),
    ],
)
def test_check_separates_undefined_from_wrong_world_sizes(
    ringlab: Ringlab, tmp_path: Path, ranks: str, wrong: str, status: int, undefined: list[int], message: str
) -> None:
    file = tmp_path / "doubling.py"
    file.write_text(DOUBLING.format(wrong=wrong), encoding="utf-8")
    done = ringlab("check", file, "--ranks", ranks, "--json", tmp_path / "check.json")
    assert (done.status, message in done.out) == (status, True), done.out
    (report,) = json.loads((tmp_path / "check.json").read_text())["algorithms"]
    assert (report["correct"], report["undefined"]) == (status == 0, undefined)


def test_world_size_with_an_undefined_root_counts_as_undefined() -> None:
    def even(rank, world_size, root):
        if root % 2:
            raise Undefined("only for even roots")
        yield from naive(rank, world_size, root)

    verdict = prove(declared("broadcast", even, chunks=1), range(1, 5))
    assert [report.world_size for report in verdict.reports] == [1]
    assert sorted(verdict.undefined) == [2, 3, 4]
