"""Compare the proof of random programs with their execution, and their costs with the lower bounds."""

from random import Random

import pytest
from random_programs import Programs, as_algorithm, change, draw_program, is_right_when_run, programs_of

import simcomm
from collectives import Algorithm, InputError, ProgramError, library, verify
from collectives.schedule.build import build_schedule
from collectives.spec import SPECS

DRAWN = sorted(SPECS.keys() - {"all_to_all"})
CHANGES = 3  # of each right program
SEEDS = [range(100), *(pytest.param(range(at, at + 500), marks=pytest.mark.slow) for at in range(100, 5100, 500))]


def draw_right(rng: Random, p: int) -> tuple[str, Programs, int, int]:
    """Return the collective, programs, chunks and scratch of a random correct program or of a library algorithm."""
    if rng.random() < 0.5:
        collective = rng.choice(DRAWN)
        return collective, *draw_program(rng, collective, p), 0
    algorithm = library()[rng.choice(sorted(library()))]
    return algorithm.spec.name, programs_of(algorithm, p), algorithm.chunks(p), algorithm.scratch(p)


def judge(algorithm: Algorithm, p: int, root: int = 0) -> str:
    try:
        verify(algorithm, p, root)
    except ProgramError as error:
        return str(error)
    return "right"


def is_refused(algorithm: Algorithm, p: int, root: int = 0) -> bool:
    """Return whether a program breaks a rule, even if its result would be correct."""
    try:
        build_schedule(algorithm, p, root)
    except InputError:
        return True
    return False


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_proof_of_a_random_program_agrees_with_its_execution(seeds: range) -> None:
    outcomes = set()
    for seed in seeds:
        rng = Random(seed)
        p = rng.randint(2, 8)
        collective, right, chunks, scratch = draw_right(rng, p)
        algorithm = as_algorithm(collective, lambda p, root, right=right: right, chunks, scratch)
        assert judge(algorithm, p) == "right" and is_right_when_run(algorithm, p, 0, seed), seed
        for number in range(CHANGES):
            changed = change(rng, right, chunks + scratch)
            algorithm = as_algorithm(collective, lambda p, root, changed=changed: changed, chunks, scratch)
            verdict, works = judge(algorithm, p), is_right_when_run(algorithm, p, 0, seed)
            refused = is_refused(algorithm, p)
            assert (verdict == "right") == (works and not refused), (seed, number, verdict)
            outcomes.add((works, refused))
    assert outcomes >= {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 600))])
def test_verified_step_count_equals_simulated_time_in_latencies(seed: int) -> None:
    rng = Random(seed)
    p, collective = rng.randint(2, 12), rng.choice(DRAWN)
    programs, chunks = draw_program(rng, collective, p)
    algorithm = as_algorithm(collective, lambda p, root: programs, chunks)
    trace = simcomm.run(algorithm, simcomm.star(p, "1000 Gbit/s", "500 ms"), 4 * chunks)
    assert trace.elapsed == pytest.approx(verify(algorithm, p).steps, abs=1e-3)
