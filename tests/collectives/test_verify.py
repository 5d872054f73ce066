"""Prove the library at many world sizes, show that each step is needed, and check the verdicts of `ringlab check`."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from declared_programs import declared
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import as_algorithm, programs_of

from collectives import InputError, ProgramError, Undefined, find_algorithm, library, verify
from collectives.errors import TooLarge
from collectives.verdict import prove
from ringlab.commands.check import check, find_algorithms

# mypy: allow-untyped-defs


@pytest.mark.parametrize("worlds", [[*range(1, 18), 33], pytest.param(list(range(18, 33)), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(library()))
def test_every_library_algorithm_is_proved_correct(name: str, worlds: list[int]) -> None:
    verdict = prove(find_algorithm(name), worlds)
    assert (verdict.problem, verdict.undefined) == (None, {})
    assert [report.world_size for report in verdict.reports] == worlds


@pytest.mark.parametrize("p", [1, 2, 6, 12, 24])
@pytest.mark.parametrize("gpus", [1, 3, 4, 8])
def test_hierarchical_all_reduce_is_correct_for_full_nodes(p: int, gpus: int) -> None:
    algorithm = find_algorithm("all_reduce/hierarchical").with_parameters(gpus=gpus)
    if p % gpus:
        with pytest.raises(Undefined, match=f"world size {p}: gpus={gpus} requires a multiple of {gpus} ranks"):
            verify(algorithm, p)
    else:
        verify(algorithm, p)


@pytest.mark.parametrize("rail", ["chain[slices=3]", "halving_doubling", "hierarchical[gpus=2]"])
@pytest.mark.parametrize(("node", "gather"), [("ring", None), ("naive", "direct"), ("recursive_halving", "bruck")])
@pytest.mark.parametrize(("p", "gpus"), [(8, 2), (12, 3), (8, 8)])
def test_hierarchical_supports_one_channel_algorithms(p: int, gpus: int, node: str, gather: str, rail: str) -> None:
    algorithm = find_algorithm("all_reduce/hierarchical").with_parameters(gpus=gpus, node=node, gather=gather)
    assert verify(algorithm.with_parameters(rail=rail if p > gpus else "ring"), p).world_size == p


@pytest.mark.parametrize("rail", ["double_tree", "unchunked_ring"])
def test_hierarchical_rejects_rail_with_two_channels_or_scratch(rail: str) -> None:
    message = f"all_reduce/{rail} has several channels or scratch, so it cannot run inside another algorithm; use an"
    with pytest.raises(InputError, match=message):
        verify(find_algorithm(f"all_reduce/hierarchical[rail={rail}]"), 8)


@pytest.mark.parametrize("reference", ["chain[]", "chain[slices]", "chain[=4]", "chain[slices=]"])
def test_algorithm_name_with_malformed_brackets_is_rejected(reference: str) -> None:
    with pytest.raises(InputError, match=r"write parameters as in chain\[slices=4\]"):
        find_algorithm(reference, "all_reduce")


def test_too_many_tracked_chunks_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge, match=r"world size 2: all ranks together have 2,000,000,000 chunks, .* declare fewer"):
        prove(declared("all_reduce", lambda rank, p: iter(()), chunks=10**9), [2])
    monkeypatch.setattr("collectives.budget.Gigabyte.FOLLOWED", 20)
    verdict = prove(find_algorithm("all_reduce/ring"), [2, 4, 5])
    assert [report.world_size for report in verdict.reports] == [2, 4]
    assert "too many to track" in verdict.too_large[5] and not verdict.undefined


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(sorted(library().keys() - {"all_to_all/bruck"})), st.integers(2, 9), st.data())
def test_removing_a_step_makes_a_library_algorithm_incorrect(name: str, p: int, data: st.DataObject) -> None:
    right = find_algorithm(name)  # Bruck's rotation moves nothing on rank 0
    programs = programs_of(right, p)
    steps = [(program, step) for channels in programs for program in channels for step in range(len(program))]
    program, step = data.draw(st.sampled_from(steps))
    del program[step]
    with pytest.raises(ProgramError):
        verify(as_algorithm(right.spec.name, lambda p, root: programs, right.chunks(p), right.scratch(p)), p)


def test_proof_skips_undefined_world_sizes() -> None:
    algorithm = find_algorithm("all_reduce/hierarchical").with_parameters(gpus=4)
    verdict = prove(algorithm, range(1, 14))
    assert verdict.problem is None
    assert [report.world_size for report in verdict.reports] == [4, 8, 12]
    assert verdict.to_dict()["undefined"] == [1, 2, 3, 5, 6, 7, 9, 10, 11, 13]
    assert verdict.undefined[5].endswith("world size 5: gpus=4 requires a multiple of 4 ranks, not 5")
    verdict = prove(find_algorithm("all_reduce/torus").with_parameters(columns=5), [4])
    assert (verdict.problem, verdict.reports) == (None, ())
    assert not verdict.to_dict()["correct"]


def test_check_states_costs_as_multiples_of_the_minimum() -> None:
    verdict = prove(find_algorithm("all_reduce/naive"), range(1, 9))
    alone, *_, eight = verdict.to_dict()["world_sizes"]
    assert (alone["steps_ratio"], alone["sent_ratio"]) == (None, None)
    assert (eight["steps_ratio"], eight["sent_ratio"], verdict.wasteful_from) == (14 / 3, 4.0, 4)
    assert prove(find_algorithm("barrier/naive"), range(1, 9)).wasteful_from is None


def test_algorithms_page_and_find_algorithms_list_the_library() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reference", "algorithms.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in library())
    assert [algorithm.full_name for algorithm in find_algorithms("library")] == list(library())


def test_repeated_world_size_is_proved_once(monkeypatch: pytest.MonkeyPatch):
    proved = Mock(side_effect=verify)
    monkeypatch.setattr("collectives.verdict.verify", proved)
    assert len(check("all_reduce/ring", [3, 2, 3]).verdicts[0].reports) == 2
    assert [call.args[1] for call in proved.call_args_list] == [2, 3]
