"""The accuracy pages show the last measurement, and every large error has an explanation."""

import csv
import re
import tomllib
from pathlib import Path

import accuracy_table
import page_writer
import pytest

from benchmarks.accuracy.nccl_answer import accuracy
from benchmarks.accuracy.tables import read_tables
from simcomm.nccl.descriptions import OWN_DATA, describe_system, put_aside, read_systems
from simcomm.nccl.parameters import read_parameters
from simcomm.nccl.predict import predict_collective
from simcomm.nccl.timing import OVERLAP, SHARPNESS

ROOT = Path(__file__).parents[2]

FOUND = page_writer.read_results("nccl_errors")
REASONS = tomllib.loads(accuracy_table.EXPLAINED.read_text())


def test_tuner_picks_ring_on_two_a100_hosts_at_published_sizes():
    line = {"nodes": 2, "gpus": 4, "gpu": "A100 SXM", "net": "ib", "nic": 200, "nccl": 2024}
    sizes = [row.nbytes for row in read_tables(["x_2x4_crossnic0_issue1411"])["x_2x4_crossnic0_issue1411"].rows]
    algorithms = {predict_collective(describe_system("older", line), "all_reduce", size).algorithm for size in sizes}
    assert algorithms == {"ring"}


def test_nccl_page_names_parameters_and_exponents_of_the_code():
    page = (ROOT / "docs" / "how-it-works" / "nccl.md").read_text()
    named = set(re.findall(r"`([a-z_]+(?:\.[a-z0-9_]+)+)`", page.partition("## The parameters")[0]))
    assert {name for name in named if not name.endswith((".py", ".toml"))} <= read_parameters().keys()
    assert f"x^{SHARPNESS:.0f}]^(1/{SHARPNESS:.0f})" in page and f"T_host^{OVERLAP:.0f})^(1/{OVERLAP:.0f})" in page


def test_three_known_rows_reduce_the_median_error_to_7_percent():
    gain = next(gain for gain in FOUND["left_out"]["gains"] if gain["sizes"] == [4096, 4194304, None])
    assert all(score["median"] <= 0.07 for score in gain["after"].values())


def test_every_error_above_50_percent_has_a_reason():
    assert accuracy_table.above(FOUND).keys() <= REASONS.keys()
    worst = {
        slug for slug, scores in accuracy().systems.items() if any(score.median > 0.5 for score in scores.values())
    }
    assert worst <= REASONS.keys(), "with the parameters as they are now"
    assert all(len(reason["reason"].split()) > 8 for reason in REASONS.values())


@pytest.mark.parametrize("slug", REASONS)
def test_explanation_of_a_large_error_quotes_its_evidence(slug: str):
    reason, system = REASONS[slug], read_systems()[slug]
    with (OWN_DATA / "systems.csv").open(encoding="utf-8", newline="") as file:
        line = next(row for row in csv.DictReader(file) if row["slug"] == slug)
    text = "\n".join([*line.values(), (OWN_DATA / f"{slug}.csv").read_text(encoding="utf-8")])
    assert reason["shown"] and [words for words in reason["shown"] if words not in text] == []
    assert {*reason["assumed"]} <= system.defaulted | {*system.guessed}


def test_held_out_systems_are_not_in_the_results():
    for answer in (FOUND["shipped"], FOUND["left_out"]):
        assert not answer["systems"].keys() & put_aside()
