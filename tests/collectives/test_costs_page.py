"""Compare docs/reference/costs.md and the docstrings of algorithms with the library."""

import re
import sys
from math import isqrt, sqrt
from pathlib import Path

import pytest

from collectives import find_algorithm, library
from collectives.costs.bounds import least_sent_share, least_steps
from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form
from collectives.spec import SPECS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "costs.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]
FORMULAS = {name: tuple(row[1:]) for row in ROWS for name in re.findall(r"`(\w+/\w+)`", row[0])}
LEAST = {name: tuple(row[1:]) for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
HOLDS = {
    "any p": lambda p: True,
    "at most, any p": lambda p: True,
    "powers of two": lambda p: p & (p - 1) == 0,
    "even p": lambda p: p % 2 == 0,
    "squares": lambda p: isqrt(p) ** 2 == p,
}


def value(formula: str, m: CostModel, s: int = 8) -> float:
    known = {"p": m.p, "n": m.nbytes, "α": m.alpha, "β": m.beta, "γ": m.gamma, "L": m.doublings, "s": s, "sqrt": sqrt}
    return float(eval(formula.replace("·", "*"), {"__builtins__": {}}, known))


STEPS = re.compile(r"((?:ceil\(log2 p\)|log2 p|\b[pgrcs]\b|[-+/()\d ])+) steps")


def stated_steps(docstring: str, m: CostModel, s: int = 8) -> float:
    """Return the number of steps in a docstring's first line; rows and columns are equal."""
    if "one step" in docstring:
        return 1.0
    match = STEPS.search(docstring)
    assert match is not None, docstring
    formula = re.sub(r"\b(\d) (?=[(L])", r"\1*", match[1].replace("ceil(log2 p)", "L").replace("log2 p", "L"))
    side = sqrt(m.p)
    return float(eval(formula.strip(), {"p": m.p, "L": m.doublings, "s": s, "g": side, "r": side, "c": side}))


def test_costs_page_has_all_algorithms_and_collectives() -> None:
    assert FORMULAS.keys() == library().keys()
    assert LEAST.keys() == SPECS.keys()


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_on_the_costs_page_match_the_library(name: str) -> None:
    formula, holds, _ = FORMULAS[name]
    assert holds.startswith("at most") == (name in UPPER_BOUNDS)
    pipelined = "slices" in find_algorithm(name).parameters
    for s in (1, 3, 8) if pipelined else (8,):
        algorithm = find_algorithm(f"{name}[slices={s}]" if pipelined else name)
        for p in (p for p in range(2, 37) if HOLDS[holds](p)):
            for costs in ((3e-6, 8e-11, 1e-11), (1e-6, 1e-9, 0.0), (0.0, 1e-10, 1e-9)):
                model = CostModel(p, 1e6, *costs)
                exact = closed_form(algorithm, model)
                assert exact is not None
                stated = value(formula, model, s)
                assert exact <= stated * (1 + 1e-9) if name in UPPER_BOUNDS else exact == pytest.approx(stated)


@pytest.mark.parametrize("collective", LEAST)
def test_bounds_on_the_costs_page_match_the_library(collective: str) -> None:
    steps, sent, _ = LEAST[collective]
    for p in range(2, 37):
        model = CostModel(p, 1e6, 1.0, 1.0, 1.0)
        assert value(steps, model) == least_steps(p)
        assert value(sent, model) == pytest.approx(least_sent_share(collective, p) * 1e6)


@pytest.mark.parametrize("name", library())
def test_algorithm_docstrings_state_bytes_and_source(name: str) -> None:
    algorithm = find_algorithm(name)
    assert re.search(r"\b[Nn]o(ne| rank) sends|\bbytes\b|\btoken\b", algorithm.function.__doc__ or "")
    family = sys.modules[algorithm.function.__module__].__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b", family + (algorithm.function.__doc__ or ""))


@pytest.mark.parametrize("name", library())
def test_algorithm_docstrings_state_the_steps_on_the_page(name: str) -> None:
    formula, holds, _ = FORMULAS[name]
    first = (find_algorithm(name).function.__doc__ or "").partition("\n")[0]
    assert ("in at most" in first) == (name in UPPER_BOUNDS)
    for p in (p for p in range(2, 37) if HOLDS[holds](p)):
        latency_alone = CostModel(p, 1.0, 1.0, 0.0, 0.0)
        assert stated_steps(first, latency_alone) == pytest.approx(value(formula, latency_alone))
