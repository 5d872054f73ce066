"""Nothing hostile gets through: no traceback, no silence, no gigabytes, no lost file, whatever the input.

What is tried is in ``hostile_cases.py``; ``python tests/hostile_runs.py --seeds 100000:105000`` tries more of it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def tried(*arguments: object) -> tuple[int, dict[str, list[str]]]:
    """Return how many cases were tried, and the problems of those that misbehaved."""
    call = [sys.executable, str(HERE / "hostile_runs.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(call, capture_output=True, text=True, cwd=HERE.parent, env=environment, timeout=3000)
    assert done.returncode == 0, done.stderr
    *lines, last = map(json.loads, done.stdout.splitlines())
    return last["tried"], {line["case"]: line["problems"] for line in lines}


def test_hostile_inputs_end_with_a_message_and_nothing_lost():
    count, found = tried("--every", 25, "--seeds", "1:101")
    assert count > 230
    assert not found


@pytest.mark.slow
def test_thousands_of_hostile_inputs_end_with_a_message_and_nothing_lost():
    count, found = tried("--every", 1, "--seeds", "101:1601")
    assert count > 4500
    assert not found


def test_the_watch_sees_what_is_wrong(tmp_path: Path):
    sys.path.insert(0, str(HERE))
    from hostile_runs import Case, Ended, _broken_manners, _losses

    good = Ended(2, "", "ringlab: no\n", 0.1, 1 << 20)
    assert not list(_broken_manners(good))
    for changes in (
        {"status": 70}, {"status": -9}, {"err": "Traceback (most recent call last):"}, {"err": ""}, {"out": "\x1b[31m"},
        {"seconds": 6.0}, {"memory": 2 << 30}, {"err": "x" * 5000}, {"err": "ringlab: a fault of Ringlab's: KeyError"},
    ):  # fmt: skip
        assert list(_broken_manners(good._replace(**changes)))
    case, before = Case("c", (), writes=("out",)), {"in": "file 644 a", "node": "crw-rw-rw- 259"}
    assert not list(_losses(case, good._replace(status=0), before, {**before, "out": "file 644 b"}))
    assert list(_losses(case, good, before, {**before, "out": "file 644 b"}))  # refused, and yet written
    assert list(_losses(case, good._replace(status=0), before, {**before, "node": "file 644 b"}))
    assert list(_losses(case, good._replace(status=0), before, {"node": "crw-rw-rw- 259"}))
