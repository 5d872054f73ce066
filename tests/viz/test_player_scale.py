"""Player pages of 16 to 2,048 ranks contain all data that they draw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Player, running_browser
from playwright.sync_api import Browser

import simcomm
from viz.player.page import export, write_player
from viz.player.runs import PlayedRun

CASES = [("all_reduce/double_tree", 2048), ("all_reduce/halving_doubling", 300), ("all_to_all/direct", 16)]


def simulate(name: str, ranks: int) -> PlayedRun:
    """Return a run on hosts of one switch."""
    return PlayedRun(simcomm.run(name, simcomm.star(ranks, "100 Gbit/s", "5 us"), 16 << 20), name)


def check_drawable(data: dict[str, Any]) -> None:
    """Assert that each rank has a position or belongs to one group."""
    ranks = data["ranks"]
    for run in data["runs"]:
        if "aggregate" not in run:
            assert None not in data["at"][:ranks]
            assert run["columns"]["src"]["length"] == run["count"] > 0
            continue
        groups = run["aggregate"]
        assert sum(groups["sizes"]) == ranks
        assert len(groups["sizes"]) == len(groups["groups"])
        assert groups["most"]["length"] == groups["rows"] * groups["bins"]
        assert groups["rows"] == ranks


def test_runs_of_few_and_many_messages_share_a_page() -> None:
    data = export("x", [simulate(name, 512) for name in ("all_reduce/ring", "all_reduce/double_tree")])
    check_drawable(data)
    assert all("aggregate" in run for run in data["runs"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as started:
        yield started


@pytest.mark.browser
@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_page_of_many_ranks_opens(browser: Browser, tmp_path: Path, name: str, ranks: int) -> None:
    runs = [simulate(name, ranks)]
    check_drawable(export("x", runs))
    write_player("x", runs, tmp_path / "x.html")
    with Player(browser, tmp_path / "x.html", "#t=0.5") as player:
        player.ask("player.seek(player.total())")
        player.draw()
        assert player.text("caption")
