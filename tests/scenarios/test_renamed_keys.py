"""Check the names of the last release: each works with a warning, or the error names its replacement."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import scenario_texts
from command_line import Ringlab

import collectives
import ringlab as package
from collectives.errors import InputError, InputWarning
from collectives.records.calibration import Calibration, FittedLine, MessageCurve, OverlapPoint, read_calibration
from collectives.removed import COMMANDS, KEYS, OPTIONS, RENAMED_FIELDS, RENAMED_FUNCTIONS, RENAMED_KEYS, WHAT_IFS
from scenarios.toml_files import tables

VALUES = {  # old key: a value
    "trouble": "{seed = 4}",
    "training.parallelism.form": '"fsdp"',
}
GPT = str(Path(__file__).parents[2] / "examples/gpt2_xl.toml")
IN_LISTS = {"faults.link.every": "faults.link=[{every=3}]"}  # key: an override with it
LINE = FittedLine(fixed=2e-5, per_byte=1e-9, worst_residual=0.0)
CURVE = MessageCurve("relay", 1, False, False, [(1024, 1e-4)])
OVERLAP = OverlapPoint("resnet18", "cifar10", 8, 2, 1, [(64, 1.0)], [(64, 1e-4)], 0.25, 0.0, 0.0)


def value_of(table: dict, key: str) -> object:
    for part in key.split("."):
        table = table[part]
    return table


def last(name: str) -> str:
    return name.rpartition(".")[2]


def expect(where: str, old: str, new: str):
    return pytest.warns(InputWarning, match=f"^{re.escape(f'{where}: {old} is now {last(new)}; rename it')}$")


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_renamed_key_works_with_a_warning(tmp_path: Path, old: str, new: str) -> None:
    path, override = tmp_path / "a.toml", f"{old}={VALUES[old]}"
    path.write_text(f"{new} = {VALUES[old]}\n")
    expected = value_of(tables(path, []), new)
    path.write_text(f"{old} = {VALUES[old]}\n")
    with expect(str(path), old, new):
        assert value_of(tables(path, []), new) == expected
    path.write_text("[[what_if]]\n")
    for prefix in ("", "what_if.0."):
        with expect(f"--set {prefix}{override}", old, new):
            content = tables(path, [prefix + override])
        assert value_of(content["what_if"][0] if prefix else content, new) == expected
    path.write_text(f"{old} = {VALUES[old]}\n{new} = {VALUES[old]}\n")
    with pytest.raises(InputError, match=f"a.toml: {re.escape(old)} is the old name of {last(new)}; remove"):
        tables(path, [])


@pytest.mark.parametrize(("old", "new"), [names for names in RENAMED_FIELDS.items() if "calibration." in names[0]])
def test_renamed_field_of_a_calibration_works_with_a_warning(tmp_path: Path, old: str, new: str) -> None:
    part = Calibration(2, 1, LINE, LINE, LINE, overlap=[OVERLAP], message_classes=[CURVE])
    calibration, path = replace(part, parts=[part]), tmp_path / "calibration.json"
    calibration.write(path)
    content = json.loads(path.read_text())
    table = content
    for key in old.split(".")[1:-1]:
        table = table[key][0]
    table[last(old)] = table.pop(last(new))
    path.write_text(json.dumps(content))
    with expect(str(path), old, new):
        assert read_calibration(path) == calibration
    table[last(new)] = table[last(old)]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"calibration.json: {old} is the old name of {last(new)}; remove"):
        read_calibration(path)


@pytest.mark.parametrize(("old", "new"), RENAMED_FUNCTIONS.items())
def test_renamed_function_works_with_a_warning(old: str, new: str) -> None:
    module = {"collectives": collectives, "ringlab": package}[old.partition(".")[0]]
    with expect(module.__name__, last(old), new):
        assert getattr(module, last(old)) is getattr(module, new)


def test_renamed_what_if_key_works_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(scenario_texts.STAR + '[training]\nmodel = "resnet50"\nbatch_size = 8\ncompute = {rate = 300.0}\n')
    with expect("--what-if", "form", "strategy"):
        answer = package.predict_devices(path, [2], what_if="form=ddp,fsdp")
    assert [case.value for case in answer.cases] == ["ddp", "fsdp"]


@pytest.mark.parametrize(
    ("names", "name", "arguments"),
    [(COMMANDS, name, (name,)) for name in COMMANDS]
    + [(OPTIONS, name, (*name.split(), "3")) for name in OPTIONS]
    + [(WHAT_IFS, name, (name.split()[0], GPT, "--what-if", f"{name.split()[2]}=3")) for name in WHAT_IFS]
    + [(KEYS, name, ("predict", "star8", "--set", IN_LISTS.get(name, f"{name}=3"))) for name in KEYS],
)
def test_removed_name_reports_its_replacement(ringlab: Ringlab, names: dict, name: str, arguments: tuple) -> None:
    status, out, error = ringlab(*arguments)
    assert (status, out) == (2, "") and f"{name} was removed; {names[name]}" in " ".join(error.split())


def test_renamed_key_prints_one_line_on_the_command_line(tmp_path: Path) -> None:
    path, line = tmp_path / "a.toml", "trouble is now faults; rename it"
    path.write_text(scenario_texts.STAR + scenario_texts.ASKS + "[trouble]\nseed = 4\n")
    command = [sys.executable, "-W", "error", "-m", "ringlab", "predict", str(path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, f"ringlab: {path}: {line}\n")
