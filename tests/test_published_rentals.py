"""Stories of rented machines come out as published, and for the published reason; what a right choice is worth."""

from pathlib import Path

import pytest

from benchmarks.studies.published_rentals import Story, bandwidth_sent, dollars_a_million, stories
from benchmarks.studies.renting_regret import (
    BySheets,
    draw_prices,
    gpu_prices,
    job_options,
    scaled_rate,
    study,
    summarise,
)
from simcomm.renting.rentals import read_rentals
from simcomm.scaling.descriptions import find_node, read_series

STORIES = {story.title.partition(":")[0]: story for story in stories()}


def test_four_4090s_are_slower_than_one() -> None:
    one, two, four, *seldom = STORIES["Four 4090s"].told
    for found in (two, four):
        assert found.predicted.rate < one.predicted.rate
        assert found.predicted.bottleneck[0] == "sync"
    assert two.predicted.rate < four.predicted.rate
    assert seldom[0].predicted.rate < 14.0 < seldom[1].predicted.rate  # as published of four: a run that exchanged so
    through = find_node("workstation").bandwidth(4) * 1e9
    assert bandwidth_sent(4, four.published or 0.0, 15.4, 3.4e9) > 3 * through  # with every sample it cannot have


def test_the_dearer_hour_is_the_cheaper_run() -> None:
    pcie, sxm = STORIES["PCIe or SXM"].told
    for way in (lambda told: told.published, lambda told: told.predicted.rate):
        assert dollars_a_million("H100 SXM", way(sxm)) < dollars_a_million("H100 PCIe", way(pcie))
    prices = {one.gpu: one.price for one in read_rentals() if one.instance in ("n3-H100x8", "n3-H100-SXM5x8")}
    assert prices["H100 SXM"] > prices["H100 PCIe"]  # type: ignore[operator]
    for told in (pcie, sxm):
        assert told.predicted.rate == pytest.approx(told.published, rel=0.1)


def test_two_4070_ti_super_are_hardly_faster_than_one() -> None:
    speedups = [2 * told.predicted.efficiency for told in STORIES["Two 4070 Ti SUPER"].told]
    assert speedups == sorted(speedups)
    assert speedups[0] < 1.18 < speedups[2]


def test_two_gpus_of_a_dgx_1_share_one_nvlink() -> None:
    two, four, eight = STORIES["One NVLink for two"].told
    assert two.predicted.efficiency < four.predicted.efficiency
    assert two.predicted.parts.sync + two.predicted.parts.steal > 1.5 * (
        four.predicted.parts.sync + four.predicted.parts.steal
    )
    for told in (two, four, eight):
        assert told.predicted.rate == pytest.approx(told.published, rel=0.05)


@pytest.mark.parametrize("story", STORIES.values(), ids=lambda story: story.title)
def test_the_page_tells_them(story: Story) -> None:
    page = Path(__file__).parent.parent.joinpath("docs", "renting.md").read_text().replace("\n", " ")
    assert f"**{story.title}.** {story.cause}." in page
    assert all(told.published is None or f"{told.published:,g}" in page for told in story.told)


def test_the_cheapest_option_is_found_where_the_rate_of_one_gpu_is_known() -> None:
    lowest = gpu_prices(read_rentals())
    prices = draw_prices(lowest)

    eight = job_options(read_series(), lowest, 8)
    found = summarise(eight, prices, lambda option: scaled_rate(option, option.alone))
    assert found.jobs > 15
    assert found.mean < 0.015
    assert found.mean < summarise(eight, prices, lambda option: option.alone * 8).mean
    assert summarise(eight, prices, lambda option: option.point.rate).right == 1.0
    some = eight[:5]  # each option asks again, without its type of GPU and its model
    assert summarise(some, prices, BySheets()).mean < 0.2


def test_the_study_of_regret_takes_the_rates_that_it_is_given() -> None:
    """With the published rates themselves nothing is regretted; the GPUs' own order of linear scaling is another."""
    series = [one for one in read_series() if one.model == "SSD300" and one.job.precision == "fp32"]
    true = [point.rate for one in series for point in one.points[1:]]
    found = study(series, true)
    assert found.keys() == {"all", "eight"}
    for ways in found.values():
        assert (ways["known"].mean, ways["known"].right) == (0.0, 1.0)
        assert ways["data_sheets"].mean > 0.0
        assert ways["linear"].mean >= 0.0
