"""Systems of authors that no fit has seen: a third of the authors is put aside by lot."""

from benchmarks.studies.nccl_unseen import draw_put_aside, fit_widths, judge, read_authors
from simcomm.nccl.descriptions import put_aside, read_systems
from simcomm.nccl.intervals import describe_widths, read_widths


def test_the_lot_decides_who_is_put_aside() -> None:
    assert read_authors().keys() & put_aside() == draw_put_aside()
    assert len(read_authors()) == 33 and read_authors().keys() < read_systems().keys()


def test_the_shipped_limits_are_those_that_the_authors_not_put_aside_choose() -> None:
    assert describe_widths(fit_widths(judge())) == describe_widths(read_widths())
