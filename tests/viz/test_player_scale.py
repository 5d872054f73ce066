"""Player pages of 16 to 2,048 ranks contain all data that they draw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Player, running_browser
from playwright.sync_api import Browser

import simcomm
from collectives import Message, find_algorithm
from collectives.budget import Gigabyte
from collectives.errors import TooLarge
from collectives.records.trace import Trace
from viz.player.page import export, write_player
from viz.player.runs import PlayedRun

OWN = '''
from collectives import algorithm, recv, send


@algorithm("broadcast", name="line", chunks=1)
def line(rank, world_size, root):
    """Pass the buffer on from rank to rank."""
    place = (rank - root) % world_size
    if place > 0:
        yield recv((rank - 1) % world_size, 0)
    if place + 1 < world_size:
        yield send((rank + 1) % world_size, 0)
'''
CASES = [("all_reduce/double_tree", 16), ("all_reduce/double_tree", 2048), ("all_reduce/halving_doubling", 300)]
CASES += [("all_reduce/ring", 301), ("all_to_all/direct", 16), ("OWN", 301)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("own") / "line.py"
    file.write_text(OWN)
    return f"{file}:line"


def simulate(name: str, ranks: int, program: str) -> PlayedRun:
    """Return a run of a library algorithm, or of the user's algorithm, on hosts of one switch."""
    algorithm = find_algorithm(program if name == "OWN" else name)
    return PlayedRun(simcomm.run(algorithm, simcomm.star(ranks, "100 Gbit/s", "5 us"), 16 << 20), algorithm.name)


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


def test_runs_of_few_and_many_messages_share_a_page(own: str) -> None:
    names = ("all_reduce/ring", "all_reduce/double_tree")
    data = export("x", [simulate(name, 512, own) for name in names])
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
def test_page_of_many_ranks_opens(browser: Browser, tmp_path: Path, own: str, name: str, ranks: int) -> None:
    runs = [simulate(name, ranks, own)]
    check_drawable(export("x", runs))
    write_player("x", runs, tmp_path / "x.html")
    with Player(browser, tmp_path / "x.html", "#t=0.5") as player:
        player.shoot(f"scale-{name.split('/')[-1]}-{ranks}")
        player.ask("player.seek(player.total())")
        player.draw()
        assert player.text("caption")


def test_call_with_too_many_routes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gigabyte, "ROUTED", 100)
    simcomm.run("all_reduce/ring", simcomm.star(16, "10 Gbit/s", "5 us"), 1 << 20, engine="compiled")
    with pytest.raises(TooLarge, match=r"routes of its 240 pairs of ranks .* the limit is 100"):
        simcomm.run("all_to_all/direct", simcomm.star(16, "10 Gbit/s", "5 us"), 1 << 20, engine="compiled")
