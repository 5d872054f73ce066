"""Simulate and draw wrong programs up to their failure."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Ringlab
from test_broken_programs import CAUGHT, GALLERY, broken_programs

import simcomm
from collectives import Algorithm, ProgramError, Trace, algorithm, make_call, read_trace, recv_reduce, send
from collectives.catalogue import load_file
from collectives.records.limits import _stuck_words
from simcomm.failing_run import run_to_failure
from viz.animation.animation import Animation
from viz.captions import describe_failure
from viz.player.buffers import follow_buffers
from viz.space_time import space_time_figure
from viz.style import WRONG, rgb

# mypy: allow-untyped-defs

DRAWN = sorted(CAUGHT.keys() - {"too_few_chunks"})  # its error has no rank


def failing(algorithm: Algorithm, ranks: int, root: int = 0) -> tuple[Trace, ProgramError]:
    cluster = simcomm.star(ranks, "10 Gbit/s", "5 us")
    call = make_call(algorithm, ranks, 6400, root=root if algorithm.spec.rooted else None)
    with pytest.raises(ProgramError) as problem:
        simcomm.run(call, cluster)
    return run_to_failure(call, cluster, problem.value), problem.value


@pytest.mark.parametrize("name", DRAWN)
def test_trace_of_a_broken_program_ends_at_the_failure(name: str, tmp_path: Path) -> None:
    ranks, root, _ = CAUGHT[name]
    trace, error = failing(broken_programs()[name], ranks, root)
    failure = trace.failure
    assert failure is not None and (failure.rank, not trace.is_complete) == (error.rank, True)
    assert failure.where.startswith("broken.py:") and failure.text in str(error)
    involved = (trace.messages.src == failure.rank) | (trace.messages.dst == failure.rank)
    assert 0 <= failure.at <= trace.elapsed and not (trace.messages.end[involved] > failure.at).any()
    trace.write(tmp_path / "wrong.trace.json")
    assert read_trace(tmp_path / "wrong.trace.json").failure == failure


def test_other_ranks_run_until_they_wait_for_the_failed_rank() -> None:
    def wrong(rank, world_size):
        yield send(rank ^ 1, 0), recv_reduce(rank ^ 1, 0)
        if rank == 0:
            raise ZeroDivisionError
        yield send(rank ^ 2, 0), recv_reduce(rank ^ 2, 0)

    trace, _ = failing(algorithm("all_reduce", chunks=1)(wrong), 4)
    assert trace.failure is not None
    assert (trace.failure.rank, trace.failure.step) == (0, 1)
    assert sorted((message.src, message.dst) for message in trace.messages if message.step == 1) == [(1, 3), (3, 1)]
    assert trace.failure.at < trace.elapsed
    assert {waiting.rank for waiting in trace.unfinished} == {2}


def test_failure_at_the_end_of_a_program_has_a_rank_but_no_step(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from collectives import algorithm, recv_reduce, send\n\n@algorithm('all_reduce', chunks=1)\n"
        "def mine(rank, world_size):\n    if rank:\n        yield send(0, 0)\n"
        "    else:\n        yield recv_reduce(1, 0)\n"
    )
    trace, _ = failing(load_file(path)[0], 2)
    assert trace.failure is not None and (trace.failure.rank, trace.failure.step) == (1, None)
    assert _stuck_words(trace)[0] == "Program error at rank 1, at its end"
    assert describe_failure(trace).startswith("program error at rank 1, at its end (mine.py:6): ")


def red_pixels(frame: np.ndarray) -> int:
    color = np.round(np.array(rgb(WRONG)) * 255)
    return int((np.abs(frame[80:372].astype(float) - color).sum(axis=2) < 12).sum())


def test_failed_rank_and_deadlock_are_drawn(tmp_path: Path, ringlab: Ringlab) -> None:
    done = ringlab("animate", f"{GALLERY}:send_before_receive", "-o", tmp_path / "wrong.png")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("WRONG  all_reduce/send_before_receive ends in a deadlock: rank 0 in step 0 (line ")
    assert (tmp_path / "wrong.png").stat().st_size > 1000
    counted_twice = Animation(failing(broken_programs()["double_count"], 3)[0], 3, 1)
    assert [red_pixels(counted_twice.frame(index)[20:]) > 100 for index in range(3)] == [False, False, True]
    trace = failing(broken_programs()["send_before_receive"], 3)[0]
    assert red_pixels(Animation(trace, 2, 1).frame(0)[20:]) > 100
    (axes,) = (figure := space_time_figure(trace)).axes
    assert [text.get_text() for text in axes.texts] == [f"waits for rank {rank}" for rank in (1, 2, 0)]
    assert not len(axes.get_xticks())  # no time passes
    assert " us" not in " ".join(text.get_text() for text in figure.texts)


OWN = """
from collectives import algorithm, recv, recv_reduce, send

@algorithm("all_reduce")
def ring(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - 1 - step) % world_size){then}recv_reduce(left, (rank - 2 - step) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), {last}(left, (rank - 1 - step) % world_size)
"""


def own_program(folder: Path, last: str = "recv", then: str = ", ") -> Path:
    """Write a user's ring: correct, with reductions in both phases, or with a deadlock."""
    file = folder / "mine.py"
    file.write_text(OWN.format(last=last, then=then))
    return file


def played(page: Path) -> dict[str, Any]:
    text = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.S)
    assert text is not None
    run: dict[str, Any] = json.loads(text[1])["runs"][0]
    return run


def test_player_shows_equal_buffers_for_user_and_library_ring(ringlab: Ringlab, tmp_path: Path) -> None:
    mine, ours = tmp_path / "mine.html", tmp_path / "ours.html"
    assert ringlab("animate", own_program(tmp_path), "-o", mine).status == 0
    assert ringlab("animate", "star8", "--algorithm", "ring", "-o", ours).status == 0
    assert played(mine)["buffers"] == played(ours)["buffers"]


def test_player_shows_buffers_of_a_wrong_program_up_to_its_error(ringlab: Ringlab, tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    done = ringlab(
        "animate", "two-racks", "--algorithm", f"{own_program(tmp_path, last='recv_reduce')}:ring", "-o", page
    )
    assert "would be counted twice" in done.out  # not the library's own ring
    trace, _ = failing(load_file(tmp_path / "mine.py")[0], 4)
    buffers = follow_buffers(trace)
    assert buffers is not None and len(buffers.carried) == len(trace.messages)
    changed = trace.messages.select(np.unique(buffers.message))
    assert changed.step[changed.dst == 0].max() == 3  # the step that counts a contribution twice
    assert played(page)["wrong"] and played(page)["failed"]


def test_deadlock_is_shown_as_a_cycle(ringlab: Ringlab, tmp_path: Path) -> None:
    page = tmp_path / "dead.html"
    file = own_program(tmp_path, then="\n        yield ")
    done = ringlab("animate", file, "-o", page)
    assert done.out.startswith("WRONG  all_reduce/ring ends in a deadlock: rank 0 in step 0")
    run = played(page)
    assert (run["failed"], run["count"]) == ([], 0)
    assert [(rank, peer) for rank, peer, *_ in run["unfinished"]] == [(rank, (rank + 1) % 8) for rank in range(8)]
    assert run["limits"]["heading"] == "8 ranks wait for each other"


def test_animate_rejects_a_file_with_several_collectives(ringlab: Ringlab, tmp_path: Path) -> None:
    file = own_program(tmp_path)
    file.write_text(file.read_text() + '\n@algorithm("barrier")\ndef wait(rank, world_size):\n    yield ()\n')
    done = ringlab("animate", file, "-o", tmp_path / "x.html")
    every = ", ".join(f"{file}:{name}" for name in ("all_reduce/ring", "barrier/wait"))
    assert done == (2, "", f"ringlab: {file}: specify one algorithm as FILE.py:NAME; the file declares {every}\n")
    assert ringlab("animate", f"{file}:all_reduce/ring", "-o", tmp_path / "x.html").status == 0
