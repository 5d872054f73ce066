"""Names of the release before: each works with a warning, or says in one line what to write instead."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import scenario_texts

import collectives
import ringlab
from collectives.errors import InputError
from collectives.records.calibration import Calibration, FittedLine, MessageCurve, OverlapPoint, read_calibration
from collectives.removed import RENAMED_FIELDS, RENAMED_FUNCTIONS, RENAMED_KEYS
from scenarios.networks import read_network
from scenarios.toml_files import tables

STAR = scenario_texts.STAR
VALUES = {  # of a key: the old name's value
    "trouble": "{seed = 4}",
    "training.parallelism.form": '"fsdp"',
    "cluster.terms.notices": "false",
}
LINE = FittedLine(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
CURVE = MessageCurve("relay", 1, False, False, [(1024, 1e-4)])
OVERLAP = OverlapPoint("resnet18", "cifar10", 8, 2, 1, [(64, 1.0)], [(64, 1e-4)], 0.25, 0.0, 0.0)


def value_of(table: dict, key: str) -> object:
    for part in key.split("."):
        table = table[part]
    return table


def write(folder: Path, *keys: str) -> Path:
    path = folder / "a.toml"
    path.write_text(
        "".join(f"{key} = {VALUES[old]}\n" for key in keys for old in VALUES if key in (old, RENAMED_KEYS[old]))
    )
    return path


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_renamed_key_works_with_a_warning(tmp_path: Path, old: str, new: str) -> None:
    path, override = write(tmp_path, new), f"{old}={VALUES[old]}"
    expected, warning = (
        value_of(tables(path, []), new),
        f"^{re.escape(old)} is deprecated; rename it to {re.escape(new)}$",
    )
    with pytest.warns(FutureWarning, match=warning):
        assert value_of(tables(write(tmp_path, old), []), new) == expected
    path.write_text("")
    with pytest.warns(FutureWarning, match=warning):
        assert value_of(tables(path, [override]), new) == expected
    path.write_text("[[what_if]]\n")
    with pytest.warns(FutureWarning, match=warning):
        assert value_of(tables(path, [f"what_if.0.{override}"])["what_if"][0], new) == expected


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_renamed_key_is_rejected_next_to_its_new_name(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(old)} is the deprecated name of {re.escape(new)}; remove one"):
        tables(write(tmp_path, old, new), [])


def test_renamed_key_works_inside_an_inline_table(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="parallelism.form is deprecated"):
        found = tables(write(tmp_path), ["training.parallelism={form = 'zero2'}"])
    assert found["training"]["parallelism"] == {"strategy": "zero2"}


def test_renamed_key_works_in_a_network(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="terms.notices is deprecated"):
        found = read_network("star8", ranks=4, changes=["cluster.terms.notices=false"])
    assert found.cluster.world_size == 4


@pytest.mark.parametrize(("old", "new"), RENAMED_FIELDS.items())
def test_renamed_field_of_a_calibration_works_with_a_warning(tmp_path: Path, old: str, new: str) -> None:
    part = Calibration(2, 1, LINE, LINE, LINE, overlap=[OVERLAP], message_classes=[CURVE])
    calibration, path = replace(part, parts=[part]), tmp_path / "calibration.json"
    calibration.write(path)
    content = json.loads(path.read_text())
    table, name, renamed = content, old.rpartition(".")[2], new.rpartition(".")[2]
    for key in old.split(".")[1:-1]:
        table = table[key][0]
    table[name] = table.pop(renamed)
    path.write_text(json.dumps(content))
    with pytest.warns(FutureWarning, match=f"^{old} is deprecated; rename it to {new}$"):
        assert read_calibration(path) == calibration
    table[renamed] = table[name]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{old} is the deprecated name of {new}"):
        read_calibration(path)


@pytest.mark.parametrize(("old", "new"), RENAMED_FUNCTIONS.items())
def test_renamed_function_works_with_a_warning(old: str, new: str) -> None:
    package, _, name = old.partition(".")
    module = {"collectives": collectives, "ringlab": ringlab}[package]
    with pytest.warns(FutureWarning, match=f"{old} is deprecated; rename it to {package}.{new}"):
        assert getattr(module, name) is getattr(module, new)


def test_renamed_what_if_works_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(STAR + '[training]\nmodel = "resnet50"\nbatch_size = 8\ncompute = {rate = 300.0}\n')
    with pytest.warns(FutureWarning, match="--what-if form is deprecated; rename it to --what-if strategy"):
        found = ringlab.predict_devices(path, [2], what_if="form=ddp,fsdp")
    assert [case.value for case in found.cases] == ["ddp", "fsdp"]
