"""Fits on tables made by the model itself, without some systems, and without parts of the model."""

import numpy as np
import pytest

from benchmarks.accuracy.tables import MeasuredTable, PublishedRow
from benchmarks.studies.nccl_systems_left_out import refit_without_each
from benchmarks.studies.nccl_unseen import (
    describe_widths,
    draw_put_aside,
    fit_widths,
    held_by_author,
    judge_left_out,
    judge_put_aside,
    read_authors,
)
from collectives import InputError
from simcomm.nccl.descriptions import describe_preset, describe_system, put_aside, read_systems
from simcomm.nccl.measured.calibration import adapt
from simcomm.nccl.measured.tables import MeasuredRow
from simcomm.nccl.parameters import Parameters, read_definitions
from simcomm.nccl.predict import interval_log_limits, predict_seconds, read_widths

SIZES = np.array([2.0**k for k in range(8, 31)])
PRIORS = Parameters({name: definition.prior for name, definition in read_definitions().items()})
SYSTEMS = {
    "dgx-h100": describe_preset("dgx-h100", 1, 8),
    "dgx-a100": describe_preset("dgx-a100", 2, 8),
    "4090": describe_system("4090", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}),
}


def made_table(slug: str, values: Parameters, factor: float = 1.0) -> MeasuredTable:
    seconds = factor * predict_seconds(SYSTEMS[slug], "all_reduce", SIZES, parameters=values)
    rows = zip(SIZES, seconds, strict=True)
    return MeasuredTable(
        slug, tuple(PublishedRow("all_reduce", int(size), float(time), None, None) for size, time in rows)
    )


def test_leave_one_out_fit_ignores_the_table_of_the_system():
    tables = {slug: made_table(slug, PRIORS, 1.3 if slug == "4090" else 1.0) for slug in SYSTEMS}
    heard: list[tuple] = []
    folds = refit_without_each(SYSTEMS, tables, lambda *news: heard.append(news))
    assert folds.parameters.keys() == SYSTEMS.keys()
    assert [news[1:3] for news in heard] == [(1, 3), (2, 3), (3, 3)]
    others = folds.parameters["4090"]
    assert [others[name] for name in PRIORS] == pytest.approx([PRIORS[name] for name in PRIORS], rel=1e-2)
    assert any(abs(np.log(folds.parameters["dgx-h100"][name] / PRIORS[name])) > 0.01 for name in PRIORS)


def test_adapted_model_matches_rows_and_improves_other_sizes():
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


def test_adapted_interval_grows_with_distance_to_a_row():
    system, truth = SYSTEMS["dgx-a100"], made_table("dgx-a100", PRIORS, 1.4)
    adapted = adapt(system, [truth.rows[14]])
    sizes = truth.rows[14].nbytes * np.array([1.0, 2.0, 16.0])
    widths = adapted.log_limits_at(adapted.points("all_reduce", sizes))
    plain = interval_log_limits(system, sizes)
    assert (widths[:, 0] < widths[:, 1]).all() and (widths[:, 1] < widths[:, 2]).all()
    assert (widths <= plain).all() and (widths[:, 0] < plain[:, 0] / 2).all()
    gathered = adapted.log_limits_at(adapted.points("all_gather", sizes))
    assert (gathered >= widths).all() and (gathered > widths).any(), "another collective is less sure"


def test_adapt_rejects_a_table_without_usable_times():
    with pytest.raises(InputError, match="no row has a time; measure one of all_reduce"):
        adapt(SYSTEMS["dgx-h100"], [MeasuredRow("all_reduce", 1024, None, None, 0.01)])


def test_held_out_systems_are_reproduced_by_the_seed() -> None:
    assert read_authors().keys() & put_aside() == draw_put_aside()
    assert len(read_authors()) == 33 and read_authors().keys() < read_systems().keys()


def test_shipped_interval_widths_equal_a_new_leave_one_out_fit() -> None:
    judged = judge_left_out()
    assert not set(judged.keys["system"]) & put_aside()
    assert describe_widths(fit_widths(judged)) == describe_widths(read_widths())


def test_intervals_cover_80_percent_of_held_out_authors() -> None:
    judged = judge_put_aside()
    assert set(judged.keys["system"]) <= put_aside()
    coverages = [*held_by_author(judged.take(judged.keys["later"])).values()]
    assert min(coverages) >= 0.7 and 0.75 <= np.mean(coverages) <= 0.85
