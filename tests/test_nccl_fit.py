"""Fits and adaptations on tables that the model itself made: what was put in comes out again."""

from math import inf

import numpy as np
import pytest

from benchmarks.studies.nccl_fit import fit_parameters, observe, observe_tables
from benchmarks.studies.nccl_systems_left_out import refit_without_each
from collectives import InputError
from simcomm.accuracy.nccl import MEASURABLE, measure_gains, measured_rows
from simcomm.nccl.descriptions import describe_preset, describe_system
from simcomm.nccl.measured.calibration import adapt
from simcomm.nccl.measured.tables import MeasuredRow, MeasuredTable, SizeSeries
from simcomm.nccl.parameters import Parameters, read_definitions
from simcomm.nccl.predict import interval_log_limits, predict_seconds

SIZES = np.array([2.0**k for k in range(8, 31)])
PRIORS = Parameters({name: found.prior for name, found in read_definitions().items()})
SYSTEMS = {
    "dgx-h100": describe_preset("dgx-h100", 1, 8),
    "dgx-a100": describe_preset("dgx-a100", 2, 8),
    "4090": describe_system("4090", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}),
}


def made_table(slug: str, values: Parameters, factor: float = 1.0) -> MeasuredTable:
    seconds = factor * predict_seconds(SYSTEMS[slug], "all_reduce", SIZES, parameters=values)
    rows = zip(SIZES, seconds, strict=True)
    return MeasuredTable(
        slug, tuple(MeasuredRow("all_reduce", int(size), float(time), None, None) for size, time in rows)
    )


def test_a_fit_to_what_the_priors_predict_stays_at_the_priors():
    tables = {slug: made_table(slug, PRIORS) for slug in SYSTEMS}
    fit = fit_parameters(observe_tables(SYSTEMS, tables))
    assert fit.cost == pytest.approx(0, abs=1e-9)
    assert [fit.parameters[name] for name in PRIORS] == pytest.approx([PRIORS[name] for name in PRIORS])


def test_a_fit_moves_the_parameter_that_was_changed():
    changed = PRIORS.changed({"share.shm": PRIORS["share.shm"] * 0.7})
    tables = {"4090": made_table("4090", changed)}
    observed = observe_tables(SYSTEMS, tables) * 30  # against one system the springs would win
    fit = fit_parameters(observed)
    assert not fit.is_stalled
    assert fit.parameters["share.shm"] < PRIORS["share.shm"] * 0.9
    before, after = (
        np.abs(one.log_predicted(values) - one.log_seconds).mean()
        for one in observed[:1]
        for values in (PRIORS, fit.parameters)
    )
    assert after < 0.7 * before
    assert fit_parameters(observed, fit.parameters).cost == pytest.approx(fit.cost, rel=1e-2)


def test_leaving_a_system_out_means_not_to_see_its_table():
    tables = {slug: made_table(slug, PRIORS, 1.3 if slug == "4090" else 1.0) for slug in SYSTEMS}
    heard: list[tuple] = []
    folds = refit_without_each(SYSTEMS, tables, lambda *news: heard.append(news))
    assert folds.parameters.keys() == SYSTEMS.keys()
    assert [news[1:3] for news in heard] == [(1, 3), (2, 3), (3, 3)]
    others = folds.parameters["4090"]
    assert [others[name] for name in PRIORS] == pytest.approx([PRIORS[name] for name in PRIORS], rel=1e-2)
    assert any(abs(np.log(folds.parameters["dgx-h100"][name] / PRIORS[name])) > 0.01 for name in PRIORS)


def test_every_class_of_sizes_weighs_the_same():
    series = SizeSeries("all_reduce", SIZES, SIZES / 1e9)
    observed = observe(SYSTEMS["dgx-h100"], [series])
    assert observed is not None
    assert observed.weights.sum() == pytest.approx(3)
    assert observed.weights[SIZES <= 65536].sum() == pytest.approx(1)
    assert observe(SYSTEMS["dgx-h100"], []) is None


def test_an_adapted_model_meets_the_rows_and_helps_between_them():
    system, truth = SYSTEMS["dgx-a100"], made_table("dgx-a100", PRIORS, 1.4)
    known = [truth.rows[4], truth.rows[14], truth.rows[-1]]
    adapted = adapt(system, known)
    sizes = [row.nbytes for row in known]
    assert adapted.seconds("all_reduce", sizes) == pytest.approx([row.seconds for row in known], rel=5e-3)
    every = np.array([row.seconds for row in truth.rows])
    errors = np.abs(adapted.seconds("all_reduce", SIZES) / every - 1)
    plain = np.abs(predict_seconds(system, "all_reduce", SIZES) / every - 1)
    assert np.median(errors) < np.median(plain) / 2
    gathered = adapted.seconds("all_gather", [2.0**30]) / predict_seconds(system, "all_gather", [2.0**30])
    assert gathered[0] > 1.1, "a collective that was not measured takes the correction of the others"


def test_an_adapted_interval_grows_with_the_distance_to_a_row_up_to_that_of_the_bare_model():
    system, truth = SYSTEMS["dgx-a100"], made_table("dgx-a100", PRIORS, 1.4)
    adapted = adapt(system, [truth.rows[14]])
    sizes = truth.rows[14].nbytes * np.array([1.0, 2.0, 16.0])
    widths = adapted.log_limits_at(adapted.points("all_reduce", sizes))
    plain = interval_log_limits(system, sizes)
    assert (widths[:, 0] < widths[:, 1]).all() and (widths[:, 1] < widths[:, 2]).all()
    assert (widths <= plain).all() and (widths[:, 0] < plain[:, 0] / 2).all()
    gathered = adapted.log_limits_at(adapted.points("all_gather", sizes))
    assert (gathered >= widths).all() and (gathered > widths).any(), "another collective is less sure"


def test_nothing_to_adapt_to_is_refused():
    with pytest.raises(InputError, match="no row of all_reduce"):
        adapt(SYSTEMS["dgx-h100"], [MeasuredRow("all_reduce", 1024, None, None, 0.01)])


def test_the_rows_to_measure_are_the_nearest_and_differ():
    series = SizeSeries("all_reduce", np.array([2048.0, 2**20, 2**26]), np.ones(3))
    assert measured_rows(series, (4096.0, 4194304.0, inf)) == [0, 1, 2]
    assert measured_rows(series, (4096.0, 32768.0, inf)) == [], "one row would stand for two sizes"


def test_gains_are_ranked_and_judged_on_the_other_rows():
    tables = {slug: made_table(slug, PRIORS, 1.5) for slug in ("dgx-a100", "4090")}
    gains = measure_gains(SYSTEMS, tables, 1)
    assert len(gains) == len(MEASURABLE)
    assert [gain.worst for gain in gains] == sorted(gain.worst for gain in gains)
    for gain in gains:
        assert all((gain.after[name].median or 0) < (score.median or 0) for name, score in gain.before.items())
    largest = next(gain for gain in gains if gain.sizes == (np.inf,)).to_dict()
    assert largest["sizes"] == [None] and largest["after"]["large"]["median"] < largest["before"]["large"]["median"]
    with pytest.raises(InputError, match="--calibrate 8; give 1 to 7 rows"):
        measure_gains(SYSTEMS, tables, 8)
