"""Public threads with a found cause: what is told right, wrong and not known; and that the record is as it is now."""

import json
from collections import Counter

import pytest

from benchmarks.studies.diagnosed_cases import FOLDER, HALVES, RESULTS, judge_half, read_cases

LEAST_RIGHT, MOST_WRONG = 0.6, 0.1


@pytest.mark.parametrize("half", ["known", "aside"])
def test_most_are_told_right_and_few_wrong(half: str) -> None:
    outcomes = judge_half(half)
    tally = Counter(one.told for one in outcomes)
    assert tally["right"] >= LEAST_RIGHT * len(outcomes)
    assert tally["wrong"] <= MOST_WRONG * len(outcomes)


def test_the_record_is_what_the_rules_make_now() -> None:
    recorded = json.loads(RESULTS.read_text())["threads"]
    for half in HALVES:
        told = {one.name: one.told for one in judge_half(half)}
        assert told == {one["name"]: one["told"] for one in recorded[half]}


def test_there_are_forty_cases_with_their_sources_and_the_lot_says_which_half_each_is_of() -> None:
    aside = set((FOLDER / "put_aside.txt").read_text().split())
    candidates = set((FOLDER / "candidates.txt").read_text().split())
    cases = {half: [case for _, case in read_cases(half)] for half in HALVES}
    assert sum(map(len, cases.values())) >= 40
    for half, found in cases.items():
        for case in found:
            owner, repository, _, number = case["source"].removeprefix("https://github.com/").split("/")
            name = f"{owner}/{repository}#{number}"
            if not half.endswith("_lot"):
                assert (name in candidates) == (half != "later")
                assert (name in aside) == (half == "aside")
            assert case["found"]
