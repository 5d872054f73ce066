"""Systems of authors that no fit has seen: none is known to a fit, and the shipped intervals hold their rows."""

from benchmarks.studies.nccl_unseen import PUT_ASIDE, UNSEEN, fit_widths, judge, read_authors, scores
from simcomm.nccl.descriptions import read_systems
from simcomm.nccl.intervals import describe_widths, read_widths
from simcomm.nccl.measured.tables import read_tables


def test_no_unseen_system_is_one_that_fits_see() -> None:
    own, unseen = read_systems(), read_systems(UNSEEN)
    assert not own.keys() & unseen.keys() and unseen.keys() == read_authors().keys()
    seen = {table.rows for table in read_tables(own).values()}
    assert not seen & {table.rows for table in read_tables(unseen, UNSEEN).values()}
    assert set(read_authors().values()) > PUT_ASIDE


def test_the_shipped_limits_are_those_that_the_authors_not_put_aside_choose() -> None:
    assert describe_widths(fit_widths(judge())) == describe_widths(read_widths())


def test_intervals_hold_rows_of_authors_that_neither_the_fit_nor_the_limits_have_seen() -> None:
    held = [score.coverage80 for score in scores()["authors put aside"].values()]
    assert all(share is not None and share >= 0.7 for share in held)
