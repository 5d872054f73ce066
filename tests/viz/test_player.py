"""The player in a browser: what a person would check, on pages made of simulated and measured runs."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import player_pages
import pytest
from browser import READY_MS, Player, running_browser
from PIL import Image, ImageColor
from playwright.sync_api import Browser

import realcomm
import simcomm
import viz
from collectives import find_algorithm
from collectives.call import make_call
from viz.player import runs as player_runs
from viz.player.page import render_player, write_player
from viz.player.runs import PlayedRun
from viz.report import ReportParts

pytestmark = pytest.mark.browser

BUFFERS = """([index, x]) => {
    const run = player.data.runs[index];
    return Array.from(player.buffersAt(run, x));
}"""
CROSSED = """index => {
    const run = player.data.runs[index], crossed = new Float64Array(player.data.links.src.length);
    for (let i = 0; i < run.n; i++) for (const link of run.routes[run.c.route[i]]) crossed[link] += run.c.bytes[i];
    return Array.from(crossed);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("players")


@pytest.fixture(scope="module")
def star(folder: Path) -> tuple[Path, list[PlayedRun]]:
    runs = player_pages.star()
    write_player("Eight hosts on one switch", runs, folder / "star.html")
    return folder / "star.html", runs


def page_of(folder: Path, name: str, runs: list[PlayedRun]) -> Path:
    write_player(name, runs, folder / f"{name}.html")
    return folder / f"{name}.html"


def check_runs(player: Player, runs: list[PlayedRun]) -> None:
    """Assert that each run has all messages and bytes, and buffers that are complete only at its end."""
    for index, run in enumerate(runs):
        player.ask("index => player.showRun(index)", index)
        assert player.ask("index => player.data.runs[index].n", index) == len(run.trace.messages)
        if run.trace.links:
            assert player.ask(CROSSED, index) == [link.nbytes for link in run.trace.links]
        done = "([i, x]) => player.completeness(player.data.runs[i], player.buffersAt(player.data.runs[i], x))"
        start, end = (player.ask(done, [index, x]) for x in (0.0, run.trace.elapsed))
        assert end["complete"] == end["wanted"] > 0, run.name
        assert start["complete"] < start["wanted"], run.name


def test_player_plays_algorithms_until_buffers_are_complete(browser: Browser, star: Any) -> None:
    path, runs = star
    with Player(browser, path) as player:
        check_runs(player, runs)
        player.press("2", "Home")
        assert not any(value >= 1 << 30 for value in player.ask(BUFFERS, [1, 0.0]))


def test_player_compares_measured_with_predicted_runs(browser: Browser, folder: Path) -> None:
    call = make_call(find_algorithm("all_reduce/ring"), 2, 1 << 20)
    measured = realcomm.run(call, simcomm.this_machine(2), timeout=120.0, repetitions=1, warmup=0)
    predicted = simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), 1 << 20)
    runs = [PlayedRun(measured, "ring, measured"), PlayedRun(predicted, "ring, predicted")]
    with Player(browser, page_of(folder, "measured", runs)) as player:
        check_runs(player, runs[:1])
        assert player.text("limit-head").startswith("The prediction is ")
        assert "Predicted: " in player.text("say")


@pytest.mark.slow
def test_player_draws_all_chunk_colors_in_firefox(folder: Path, tmp_path: Path) -> None:
    """Playwright cannot control Debian's Firefox, which can take a screenshot of a page."""
    program = shutil.which("firefox-esr") or shutil.which("firefox") or pytest.skip("there is no Firefox here")
    page, picture = page_of(folder, "firefox", player_pages.star(("ring",), 1 << 20)), tmp_path / "firefox.png"
    command = [program, "--headless", "--profile", str(tmp_path), "--window-size", "1280,800", "--screenshot"]
    chunks = ("#4477aa", "#66b8d8", "#228855", "#a3b324", "#d6a92b", "#aa3377")
    for _ in range(5):  # the picture may come before the data is inflated
        subprocess.run([*command, str(picture), f"file://{page}#t=1"], check=True, capture_output=True, timeout=60)
        pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
        drawn = [(abs(pixels - ImageColor.getrgb(hue)).max(axis=2) < 8).sum() for hue in chunks]
        if min(drawn) > 2000:
            return
    pytest.fail(f"pixels of each chunk: {drawn}")


def test_printed_player_page_uses_light_colors(browser: Browser, star: Any) -> None:
    with Player(browser, star[0], "#t=0.4") as player:
        player.press("d")
        player.ask("dispatchEvent(new Event('beforeprint'))")
        assert player.ask("document.documentElement.className") == ""
        assert player.color_count("stage", "ink") > 500
        player.ask("dispatchEvent(new Event('afterprint'))")
        assert player.ask("document.documentElement.className") == "dark"
        assert len(player.page.pdf()) > 50_000


def test_space_key_plays_and_pauses(browser: Browser, star: Any) -> None:
    with Player(browser, star[0]) as player:
        before = player.pixels("stage")
        player.press(" ")
        player.page.wait_for_timeout(500)
        player.press(" ")
        position = player.x
        assert position > 0
        assert player.pixels("stage") != before
        player.page.wait_for_timeout(150)
        assert player.x == position
        player.press("End")
        assert player.text("caption") == "Done after 11.9 ms: every rank holds the sum of the data of all 8 ranks."
        end = player.x
        player.press(" ")  # from the start again
        player.page.wait_for_timeout(100)
        assert player.x < end


def test_step_keys_move_to_the_end_of_the_next_or_previous_step(browser: Browser, star: Any) -> None:
    with Player(browser, star[0]) as player:
        ends = player.ask("player.data.runs[1].stepEnd")
        player.press("Home", *["Shift+ArrowRight"] * 3)
        assert player.x == pytest.approx(ends[2])
        values = player.ask(BUFFERS, [1, player.x])[:8]
        assert sorted(value.bit_count() for value in values) == [1, 1, 1, 1, 1, 2, 3, 4]
        player.press("ArrowLeft")
        assert player.x < ends[2]
        player.press("Shift+ArrowRight", "l")
        assert (player.ask("player.view.clock"), player.x) == ("steps", 3)
        player.press("Shift+ArrowRight", "l")
        assert player.x == pytest.approx(ends[3])
        assert player.text("caption").startswith("Step 5 of 14. 8 messages of 1 MiB at once, each to the next rank")
        player.press(*["Shift+ArrowRight"] * 3)
        assert player.text("caption").startswith("Step 8 of 14. Halfway: each rank has one finished sum and passes it ")


def test_player_keys_select_views_runs_and_ranks(browser: Browser, star: Any) -> None:
    with Player(browser, star[0]) as player:
        assert not player.page.locator("#key").is_visible(), "the legend is next to the ranks"
        player.press("v")
        assert player.ask("player.view.kind") == "wires" and player.page.locator("#key").is_visible()
        player.press("r", "End")
        assert player.ask("player.view.shown") == [1, 0]
        assert player.text("say") == "ring is 7.9 times as fast as naive: its busiest rank sends 14 MiB, not 56 MiB."
        player.press("Home")
        assert player.text("caption") == "ring: 8 chunks on each rank; naive: one whole buffer on each rank."
        player.press("r", "/", "5")
        assert player.ask("player.view.rank") == 5
        player.press("Escape", "Escape")
        assert player.ask("player.view.rank") == -1
        player.press("3")
        assert player.ask("player.view.shown") == [2]
        player.press("?")
        assert player.ask("document.getElementById('help').open")
        player.press("Escape", "c", "d")
        assert player.ask("[player.view.path, document.documentElement.className]") == [True, "dark"]


def test_hover_describes_a_message_or_rank(browser: Browser, star: Any) -> None:
    with Player(browser, star[0], "#t=0.3") as player:
        player.page.mouse.move(566, 560)
        player.draw()
        assert "added" in player.text("tip")
        assert "1 MiB in 8" in player.text("tip")
        player.page.mouse.move(490, 188)
        player.draw()
        assert player.text("tip").startswith("rank 0 on h0")


def test_wheel_zooms_and_drag_pans_the_network(browser: Browser, star: Any) -> None:
    with Player(browser, star[0]) as player:
        lanes, stage = (player.page.locator(f"#{name}").bounding_box() for name in ("lanes", "stage"))
        assert lanes and stage
        player.page.mouse.move(lanes["x"] + 500, lanes["y"] + 120)
        player.page.mouse.wheel(0, -600)
        player.draw()
        assert player.ask("player.view.to - player.view.from") < 0.6
        player.page.mouse.click(lanes["x"] + 600, lanes["y"] + 120)
        assert player.x > 0
        where = (stage["x"] + 490, stage["y"] + 80)  # rank 0
        player.page.mouse.move(*where)
        player.page.mouse.wheel(0, -600)
        player.draw()
        zoom = player.ask("player.view.zoom")
        assert zoom["scale"] > 2
        player.page.mouse.click(*where)
        assert player.ask("player.view.rank") == 0, "what is under the pointer stays there"
        player.page.mouse.move(stage["x"] + 300, stage["y"] + 300)
        player.page.mouse.down()
        player.page.mouse.move(stage["x"] + 340, stage["y"] + 280, steps=4)
        player.page.mouse.up()
        moved = player.ask("player.view.zoom")
        player.press("0")
        assert player.ask("[player.view.from, player.view.to, player.view.zoom.scale]") == [0, 1, 1]
        assert moved["scale"] == zoom["scale"] and moved["x"] != zoom["x"] and moved["y"] != zoom["y"]


def test_pinch_gesture_zooms_the_player(browser: Browser, star: Any) -> None:
    with Player(browser, star[0], has_touch=True) as player:
        session = player.context.new_cdp_session(player.page)
        for spread in (20, 60, 100):
            points = [{"x": 490 - spread, "y": 300, "id": 0}, {"x": 490 + spread, "y": 300, "id": 1}]
            kind = "touchStart" if spread == 20 else "touchMove"
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        player.draw()
        assert player.ask("player.view.zoom.scale") == pytest.approx(5, rel=0.2)


def test_player_draws_a_slow_link_in_red(browser: Browser, folder: Path, star: Any) -> None:
    with Player(browser, page_of(folder, "slow", player_pages.racks()), "#t=0.3") as player:
        assert player.text("limit-head") == "rank 13 ↔ s1 is slow"
        assert player.text("limit").startswith("It behaves like a link of 2 Gbit/s, not 10 Gbit/s, in use all the time")
        assert player.text("links").startswith("rank 13 ↔ s12 Gbit/s of 10 Gbit/srank 0 ↔ s010 Gbit/s of 10 Gbit/s")
        assert player.color_count("stage", "full") > 500
    with Player(browser, star[0], "#t=0.3") as player:
        assert player.text("limit-head") == "Bandwidth-bound"
        player.press("v")
        assert player.color_count("stage", "full") == 0


def test_player_crosses_out_a_failed_rank(browser: Browser, folder: Path) -> None:
    runs = player_pages.failing()
    assert runs[0].trace.unfinished
    with Player(browser, page_of(folder, "failing", runs), "#t=0.1") as player:
        assert player.color_count("stage", "full") == 0
        player.press("End")
        assert player.color_count("stage", "full") > 100
        assert player.text("limit-head") == "Rank 3 fails"
        assert "Rank 3 failed. Blocked forever: rank 2 waits in step 5 of its program" in player.text("caption")
        assert "Rank 3 fails at 4 ms.Rank 2 waits from " in player.text("story")


def test_player_shows_phases_and_buckets_of_a_training(browser: Browser, folder: Path) -> None:
    with Player(browser, page_of(folder, "training", player_pages.training()), "#t=0.4") as player:
        assert player.text("caption").startswith("Backward and bucket 0. ")
        player.page.mouse.move(500, 540)
        player.draw()
        assert player.text("tip")
        assert "Mean time per rank: forward " in player.text("story")


def test_player_never_interprets_names_as_markup(browser: Browser, folder: Path) -> None:
    name = player_pages.EVIL.replace("/", "|")
    with Player(browser, page_of(folder, name, player_pages.hostile())) as player:
        assert player.ask("document.images.length") == 0
        assert name in player.text("title")
        assert player_pages.EVIL in player.text("say") and player_pages.EVIL in player.text("story")
        player.press("v", "End", "Home", "l", "c")
        player.problems.clear()
        make = "const it = document.createElement('script'); it.textContent = 'window.hacked = 1';"
        assert player.ask(f"() => {{ {make} document.body.append(it); return window.hacked === undefined; }}")
        player.page.wait_for_timeout(50)
        assert player.problems, "the policy says that it has stopped a script"
        player.problems.clear()


def test_phone_shows_the_legend_without_scrolling(browser: Browser, star: Any) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with Player(browser, star[0], "#t=0.3", **phone) as player:
        assert player.ask("document.documentElement.scrollWidth") <= 390
        assert player.page.locator("#play").is_visible()
        legend = player.page.locator("#key").bounding_box()
        assert legend and legend["y"] + legend["height"] < 400 and "Color: one of 8 chunks" in player.text("key")


def test_reduced_motion_plays_step_by_step(browser: Browser, star: Any) -> None:
    with Player(browser, star[0], "", reduced_motion="reduce") as player:
        assert not player.ask("player.view.playing")
        player.press(" ")
        player.page.wait_for_timeout(1100)
        steps = player.ask("player.data.runs[1].stepEnd.slice(0, 3)")
        assert player.x in [pytest.approx(end) for end in steps]


def test_player_describes_events_to_screen_readers(browser: Browser, star: Any) -> None:
    with Player(browser, star[0], "#t=0.3") as player:
        assert player.page.get_by_role("status").text_content() == player.text("caption")
        added, kept = "8 MiB in all, added to the receiver's value;", "8 MiB in all, kept; ranks 0 to 1,"
        assert f"Step 7, done at 5.94 ms: 8 messages, {added}" in player.text("story")
        assert f"Step 14, done at 11.9 ms: 8 messages, {kept}" in player.text("story")
        player.page.emulate_media(media="print")
        assert player.page.locator("#story").is_visible()
        assert not player.page.locator("#play").is_visible()


def test_player_opens_groups_of_ranks(browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 ranks are shown as aggregates. The ranks at the degraded link have the darkest rows."""
    monkeypatch.setattr(player_runs, "MOST_MESSAGES", 100)
    runs = player_pages.racks()
    with Player(browser, page_of(folder, "groups", runs), "#t=0.5") as player:
        assert player.text("limit-head") == "rank 13 ↔ s1 is slow"
        assert player.ask("player.data.runs[0].aggregate.groups") == ["s0", "s1", "s2", "s3"]
        most = np.array(player.ask("player.data.runs[0].aggregate.most")).reshape(32, -1)
        assert set(np.argsort(-most.mean(axis=1))[:2].tolist()) == {13, 14}
        x, y = player.ask("player.data.runs[0].circle.at[1].slice(0, 2)")
        box = player.page.locator("#stage").bounding_box()
        assert box
        player.page.mouse.click(box["x"] + x, box["y"] + y)
        assert player.ask("player.view.group") == 1
        player.draw()
        assert "s1, 8 ranks: after each quarter of the run it has " in player.text("story")
        x, y = player.ask("player.data.runs[0].circle.at[5].slice(0, 2)")  # rank 13, whose cable is bad
        player.page.mouse.click(box["x"] + x, box["y"] + y)
        for _ in range(100):  # until its messages are inflated; a page may not evaluate what it is asked to wait for
            if player.ask("player.data.runs[0].detail?.rank === 13"):
                break
            player.page.wait_for_timeout(20)
        player.draw()
        assert "Rank 13, one row per peer:" in player.text("caption")
        listed = "(({listed, detail: {own}}) => own.map(i => [listed.src[i], listed.dst[i], listed.bytes[i]]))"
        shown = sorted(map(tuple, player.ask(f"{listed}(player.data.runs[0])")))
        assert shown == sorted((m.src, m.dst, m.nbytes) for m in runs[0].trace.messages if 13 in (m.src, m.dst))
        player.page.mouse.move(box["x"] + 400, 590)
        player.draw()
        assert re.match(r"rank 1[23] → 1[34]   step \d+, chunk \d+\n1 MiB in ", player.text("tip"))
        player.press("Escape")
        assert (player.ask("player.view.rank"), player.ask("player.view.group")) == (-1, 1)
        player.press("Escape")
        assert player.ask("player.view.group") == -1


@pytest.mark.parametrize(("name", "ranks"), player_pages.LARGE)
def test_player_page_of_many_ranks_opens(browser: Browser, folder: Path, name: str, ranks: int) -> None:
    with Player(browser, page_of(folder, f"{ranks} ranks", [player_pages.large(name, ranks)]), "#t=0.5") as player:
        player.press("End")
        assert player.text("caption")


def test_report_contains_a_player(browser: Browser, folder: Path) -> None:
    player, problems = render_player("Two runs", player_pages.star(("ring", "naive"), 1 << 20)), list[str]()
    viz.write_report({"kind": "prediction"}, ReportParts(player=player), folder / "report.html")
    with browser.new_page() as page:
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(error.message))
        page.goto(f"file://{folder}/report.html")
        inside = page.frame_locator("iframe.player")
        inside.locator('html[data-ready="1"]').wait_for(state="attached", timeout=READY_MS)
        assert (inside.locator("#title").text_content(), problems) == ("Two runs", [])
