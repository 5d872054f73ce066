"""The map of winners: what is chosen in every cell, shown as a table, as JSON and as a picture."""

import io
import json
from pathlib import Path

import pytest
from matplotlib.colors import rgb_to_hsv
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import simcomm
from collectives import InputError, find_algorithm
from ringlab.cli import app
from ringlab.commands.predicting.winners import WinnersAnswer, winners
from ringlab.table import Table, print_parts
from simcomm.cluster.cluster import doublings
from simcomm.selection import AlgorithmChoice, Candidate, WinnerMap, choose, winner_map
from viz.style import write_figure
from viz.winners import Winners, shade_by_gain, winner_colours, winners_figure

STAR = simcomm.star(8, "100 Gbit/s", "2 us")
NAMES = [["ring", "ring", "naive"], ["naive", "ring", "ring"]]


def test_every_cell_says_what_choose_says() -> None:
    answer = winners("all_reduce", STAR, "2,5,8", ("1K", "1M", 32)).to_dict()
    assert [(cell["world_size"], cell["bytes"]) for cell in answer["cells"]] == [
        (p, nbytes) for p in (2, 5, 8) for nbytes in (1 << 10, 1 << 15, 1 << 20)
    ]
    for cell in answer["cells"]:
        cluster = STAR.on_first(cell["world_size"])
        assert cell["algorithm"] == choose("all_reduce", cluster, cell["bytes"]).algorithm.label
        exactly = choose("all_reduce", cluster, cell["bytes"])  # some buffers do not fall into equal chunks
        assert cell["time_s"] == pytest.approx(exactly.seconds, rel=0.01)
        assert cell["next_best_time_s"] >= cell["time_s"] * (1 - 1e-9)
    json.dumps(answer, allow_nan=False)


def test_the_table_has_a_row_for_each_stretch() -> None:
    answer = winners("all_reduce", STAR, "8", ("1K", "64M", 4), ["recursive_doubling", "ring"])
    console = Console(file=io.StringIO(), width=80)
    print_parts(answer.show(), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert [line.split()[:5] for line in shown.splitlines() if "iB" in line] == [
        ["8", "1", "KiB", "to", "256"], ["1", "MiB", "to", "64", "MiB"]
    ]  # fmt: skip


def test_algorithms_that_alternate_at_no_distance_are_one_row() -> None:
    ring, both = (find_algorithm(name, "all_reduce") for name in ("ring", "bidirectional_ring"))
    times = [(1.0, 2.0), (1.0, 1.002), (1.001, 1.0), (1.0, 1.003), (2.0, 1.0)]
    row = []
    for pair in times:
        found = sorted(map(Candidate, (ring, both), pair), key=lambda one: one.seconds)
        row.append(AlgorithmChoice(*found[0], tuple(found)))
    shown = WinnersAnswer(WinnerMap("all_reduce", "star", (1, 2, 3, 4, 5), (6,), (tuple(row),)), "float32")
    table, said = shown.show()
    assert isinstance(table, Table) and [[*row] for row in table.rows] == [
        ["6", "1 B to 4 B", "ring", "bidirectional_ring", "1.00 to 2.00"],
        ["", "5 B", "bidirectional_ring", "ring", "2.00"],
    ]
    assert isinstance(said, str) and "less than 1% apart" in said


@pytest.mark.parametrize(("most", "ranks"), [(1, [1]), (2, [2]), (5, [2, 3, 4, 5]), (24, [2, 3, 4, 6, 8, 12, 16, 24])])
def test_ranks_double_with_one_between(most: int, ranks: list[int]) -> None:
    assert doublings(most) == ranks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all_reduce", STAR, "2-9", ("1K", "1M", 2)), "--ranks 2-9: 9 ranks do not fit on star of 8 hosts"),
        (("all_reduce", STAR, "two", ("1K", "1M", 2)), "--ranks 'two': 'two' is not a number or a range"),
        (("all_sum", STAR, None, ("1K", "1M", 2)), "no collective is called 'all_sum'"),
        (("all_reduce", STAR, None, ("1M", "1K", 2)), "-e must be at least -b"),
        (("all_reduce", STAR, "1-8", ("1", "1G", 1.02)), "the map has at most"),
        (("all_reduce", simcomm.this_machine(4), "2", ("1K", "1M", 2)), "calibrated for all of its 4 ranks alone"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        winners(*arguments)


def test_the_command_draws_and_writes_and_shows(tmp_path: Path) -> None:
    picture, answer = tmp_path / "map.png", tmp_path / "map.json"
    options = ["--hosts", "4", "-b", "1K", "-e", "64K", "-f", "4", "-o", str(picture), "--json", str(answer)]
    result = CliRunner().invoke(app, ["winners", "--collective", "all_gather", *options])
    assert result.exit_code == 0, result.output
    assert "all_gather on star of 4 hosts, 100 Gbit/s" in result.output
    with Image.open(picture) as image:
        assert image.size == (1440, 900)
    found = json.loads(answer.read_text())
    assert (found["kind"], len(found["cells"])) == ("winners", 3 * 4)
    assert CliRunner().invoke(app, ["winners", "star8", "--ranks", "2", "-b", "1M", "-e", "1M"]).exit_code == 0
    refused = CliRunner().invoke(app, ["winners", "--set", "cluster.hosts=4"])
    assert isinstance(refused.exception, InputError)


def test_winners_that_win_most_come_first_and_a_close_race_is_pale(tmp_path: Path) -> None:
    found = Winners("test", [1, 2, 3], [2, 4], NAMES, [[1.0, 1.5, 9.0]] * 2)
    colours = winner_colours(found)
    assert list(colours) == ["ring", "naive"]
    strength = [rgb_to_hsv(shade_by_gain(colours["ring"], gain))[1] for gain in (1.0, 1.2, 1.5, 2.0, 9.0)]
    assert strength[:4] == sorted(strength[:4])
    assert strength[0] < strength[3] == strength[4]
    with pytest.raises(InputError, match=r"written as \.png or \.svg or \.pdf, not '\.gif'"):
        write_figure(winners_figure(found), tmp_path / "map.gif")


def test_a_map_is_that_of_each_cell_alone_in_any_order_of_ranks() -> None:
    for cluster in (simcomm.star(12, "10 Gbit/s", "5 us"), simcomm.two_level_tree(3, 4, "10 Gbit/s", "5 us", 4.0)):
        for collective in ("barrier", "reduce_scatter", "broadcast"):
            found = winner_map(collective, cluster, [64, 1 << 20], [12, 2, 7])
            assert found.world_sizes == (12, 2, 7)
            for world_size, row in zip(found.world_sizes, found.choices, strict=True):
                for nbytes, choice in zip(found.sizes, row, strict=True):
                    alone = choose(collective, cluster.on_first(world_size), nbytes)
                    assert (choice.algorithm, choice.seconds) == (alone.algorithm, pytest.approx(alone.seconds, 1e-12))
