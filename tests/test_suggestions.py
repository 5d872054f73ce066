"""What a message offers in place of a name that is not known."""

import pytest

from collectives import InputError
from collectives.quoting import suggest
from ringlab.shared.ranges import parse_world_sizes

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


def test_a_range_that_runs_backwards_is_turned() -> None:
    with pytest.raises(InputError, match="--ranks '8-2': 8-2 runs backwards; write 2-8"):
        parse_world_sizes("8-2")
