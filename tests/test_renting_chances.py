"""Stated probabilities that one rental is cheaper than another, held to what was published."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies import renting_chances as chances
from benchmarks.studies.renting_chances import Pair, judge_chances, pairs_of
from benchmarks.studies.renting_regret import gpu_prices, job_options
from simcomm.mesh.uncertain import Uncertain
from simcomm.renting.rentals import read_rentals
from simcomm.scaling.descriptions import find_scaling_gpu, read_series
from simcomm.scaling.one_gpu import YOURS, Alone, guess_rates, guess_together, published


def test_guesses_with_the_spread_of_what_happens_come_true_as_often_as_they_say() -> None:
    lots = np.random.default_rng(3).normal(0.0, 0.3, 4000)
    pairs = [Pair("A", "B", float(np.exp(lot)), Uncertain(1.0, {"types": 0.3})) for lot in lots]
    prices = {"A": np.array([1.0, 1.2, 1.5]), "B": np.ones(3)}
    for one in judge_chances(pairs, prices)[1:]:  # at equal prices nothing is said, and neither is cheaper
        assert one.true == pytest.approx(one.said, abs=0.02)
        assert one.low <= one.said <= one.high


def test_a_pair_is_guessed_without_its_types_and_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    options = min(job_options(read_series(), gpu_prices(read_rentals()), 1), key=len)
    pairs = list(pairs_of([options]))
    types, model = {option.series.gpu.name for option in options}, options[0].series.job.model
    left_out = [one for one in published() if one.gpu.name in types or one.job.model == model]
    wrong = [one._replace(rate=1e6) if one in left_out else one for one in published()]
    assert len(left_out) >= 2
    monkeypatch.setattr(chances, "published", lambda: wrong)
    assert list(pairs_of([options])) == pairs


def test_what_was_said_of_all_published_jobs_came_true() -> None:
    """As ``benchmarks/renting.py`` measured it last."""
    rows = json.loads((Path(__file__).parent.parent / "benchmarks/results/renting.json").read_text())["chances"]
    assert sum(row["comparisons"] for row in rows) > 40_000
    for row in rows:
        assert row["true"] == pytest.approx(row["said"], abs=0.03), row


def test_types_are_guessed_together_as_each_alone_but_for_what_they_share() -> None:
    """The rates are the same; each is as sure as alone, and none of their averages surer than sure."""
    job = next(one.job for one in read_series() if one.model == "ResNet-50")
    asked = [Alone(job, find_scaling_gpu(name), YOURS) for name in ("V100", "A100", "H100 SXM")]
    alone = guess_rates(published(), asked)
    together, covariance = guess_together(published(), asked)
    assert [one.rate for one in together] == pytest.approx([one.rate for one in alone])
    mean = np.mean([one.spread**2 for one in together])
    assert mean == pytest.approx(np.mean([one.spread**2 for one in alone]))
    assert np.linalg.eigvalsh(covariance).min() > 0
