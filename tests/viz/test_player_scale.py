"""Player pages of 16 to 2,048 ranks contain all data that they draw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Player, running_browser
from playwright.sync_api import Browser

import simcomm
from collectives import Message
from collectives.budget import Gigabyte
from collectives.errors import TooLarge
from collectives.records.trace import Trace
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


def test_many_ranks_without_links_are_grouped() -> None:
    messages = [Message(rank, rank + 1, 0, 0, 8, 0.0, 1.0) for rank in range(399)]
    check_drawable(export("x", [PlayedRun(Trace("broadcast/x", "measured", 400, 1.0, messages), "x")]))


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
        player.shoot(f"scale-{name.split('/')[-1]}-{ranks}")
        player.ask("player.seek(player.total())")
        player.draw()
        assert player.text("caption")


def test_call_with_too_many_routes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gigabyte, "ROUTED", 100)
    star = simcomm.star(16, "10 Gbit/s", "5 us")
    simcomm.run("all_reduce/ring", star, 1 << 20, engine="compiled")
    with pytest.raises(TooLarge, match=r"routes of its 240 pairs of ranks .* the limit is 100"):
        simcomm.run("all_to_all/direct", star, 1 << 20, engine="compiled")
