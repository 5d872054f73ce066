"""Systems of authors that no fit has seen: who they are is drawn by lot, and intervals hold their rows."""

import numpy as np

from benchmarks.studies.nccl_noise import find_pairs, judge
from benchmarks.studies.nccl_unseen import (
    describe_widths,
    draw_put_aside,
    fit_widths,
    held_by_author,
    judge_left_out,
    judge_put_aside,
    read_authors,
)
from simcomm.nccl.descriptions import put_aside, read_systems
from simcomm.nccl.predict import read_widths


def test_the_lot_decides_who_is_put_aside() -> None:
    assert read_authors().keys() & put_aside() == draw_put_aside()
    assert len(read_authors()) == 33 and read_authors().keys() < read_systems().keys()


def test_the_shipped_limits_are_those_that_the_authors_left_out_choose() -> None:
    judged = judge_left_out()
    assert not set(judged.keys["system"]) & put_aside()
    assert describe_widths(fit_widths(judged)) == describe_widths(read_widths())


def test_intervals_hold_rows_of_authors_that_neither_the_fit_nor_the_limits_have_seen() -> None:
    judged = judge_put_aside()
    assert set(judged.keys["system"]) <= put_aside()
    held = [*held_by_author(judged.take(judged.keys["later"])).values()]
    assert min(held) >= 0.7 and 0.75 <= np.mean(held) <= 0.85


def test_two_tables_of_one_machine_are_of_different_authors_and_differ() -> None:
    pairs = find_pairs(read_systems(), judge())
    assert len(pairs) > 10 and all(one.factor >= 1 for one in pairs)
    assert ("mi300x_1x8_rccl", "mi300x_1x8_rocm_docs") in {(one.one, one.other) for one in pairs}
