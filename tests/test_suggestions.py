"""What a message offers in place of a name that is not known."""

from pathlib import Path

import pytest

from collectives import InputError, find_algorithm
from collectives.quoting import suggest
from collectives.spec import find_spec
from ringlab.shared.ranges import parse_world_sizes
from scenarios import load
from simcomm.cluster.presets import preset

KNOWN = ("all_reduce/ring", "all_gather/ring", "all_reduce/chain")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("all_reduce/rnig", "did you mean all_reduce/ring? (there are all_reduce/ring, "),
        ("rnig", "did you mean all_reduce/ring or all_gather/ring? (there are "),
        ("broadcast/chian", "did you mean all_reduce/chain? (there are "),
        ("all_reduce/xyz", "there are all_reduce/ring, all_gather/ring, all_reduce/chain"),
    ],
)
def test_what_is_close_is_offered_first(name: str, start: str) -> None:
    assert suggest(name, KNOWN).startswith(start)


def test_more_is_said_at_the_end() -> None:
    assert suggest("x", ["a", "b"], ", or FILE.py:NAME") == "there are a, b, or FILE.py:NAME"


def test_names_of_all_sorts_are_helped(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'all_reduce/rnig'; did you mean all_reduce/ring\? .*, or FILE.py:NAME"):
        find_algorithm("all_reduce/rnig")
    with pytest.raises(InputError, match=r"no collective is called 'allreduce'; did you mean all_reduce\?"):
        find_spec("allreduce")
    with pytest.raises(InputError, match=r"machine 'dgx-a10' is not in the catalogue; did you mean dgx-a100\?"):
        preset("dgx-a10")
    with pytest.raises(InputError, match=r"preset 'dgx-a10' is not known; did you mean dgx-a100\?"):
        load("star8", ("cluster={preset='dgx-a10'}",))


def test_a_range_that_runs_backwards_is_turned() -> None:
    with pytest.raises(InputError, match="--ranks '8-2': 8-2 runs backwards; write 2-8"):
        parse_world_sizes("8-2")
