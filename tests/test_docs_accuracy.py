"""The page about accuracy: its tables are those of the last measurement, and every large error is explained."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import accuracy_table  # noqa: E402

from ringlab.answers.accuracy import accuracy, worst_systems  # noqa: E402
from simcomm.nccl.descriptions import read_systems  # noqa: E402
from simcomm.nccl.tables import put_aside  # noqa: E402

FOUND = json.loads(accuracy_table.RESULTS.read_text())
REASONS = tomllib.loads(accuracy_table.EXPLAINED.read_text())


def test_the_page_shows_what_was_measured_last():
    page = accuracy_table.PAGE.read_text()
    assert accuracy_table.updated(page) == page


def test_every_error_above_a_half_is_explained():
    assert accuracy_table.above(FOUND).keys() <= REASONS.keys()
    assert worst_systems(accuracy()).keys() <= REASONS.keys(), "with the parameters as they are now"
    assert REASONS.keys() <= read_systems().keys()
    assert all(len(reason.split()) > 8 for reason in REASONS.values())


def test_a_large_error_without_an_explanation_is_noticed():
    score = {"median": 0.6, "signed": -0.6}
    found = {"shipped": {"systems": {}}, "left_out": {"systems": {"a": {"small": score}}}}
    assert accuracy_table.above(found) == {"a": {"small": -0.6}}
    assert accuracy_table.explained(found, {"a": "slow"}) == "* **a** (small -60%): slow\n"
    with pytest.raises(KeyError):
        accuracy_table.explained(found, {})


def test_what_is_put_aside_is_not_in_the_results():
    for answer in (FOUND["shipped"], FOUND["left_out"]):
        assert not answer["systems"].keys() & put_aside()
