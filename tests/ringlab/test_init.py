"""``ringlab init``, shell completion, the version, and models passed instead of scenarios."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import Ringlab

import ringlab
from scenarios.toml_files import EXAMPLES, FOLDER, beginnings

ROOT = Path(__file__).parents[2]


def test_init_writes_a_file_once_and_shows_its_commands(ringlab: Ringlab, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    done = ringlab("init", "llama-fsdp", "-o", file)
    assert (done.status, done.err) == (0, "")
    assert file.read_text() == (FOLDER / "llama_fsdp.toml").read_text()
    assert f"  ringlab predict {file} --devices 8,16\n" in done.out
    again = ringlab("init", "llama-fsdp", "-o", file)
    assert again == (2, "", f"ringlab: {file} already exists; choose another file with -o\n")


def test_init_writes_all_files_or_none(ringlab: Ringlab, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("resnet_course.toml").write_text("mine")
    assert ringlab("init", "resnet-course").status == 2
    assert [*map(str, sorted(Path().glob("*.*")))] == ["resnet_course.toml"]
    Path("resnet_course.toml").unlink()
    assert ringlab("init", "resnet-course").status == 0
    assert {"resnet_course.py", "resnet_course.toml"} <= {path.name for path in Path().iterdir()}


def test_init_lists_examples_and_suggests_a_similar_name(ringlab: Ringlab) -> None:
    listed = ringlab("init").out
    assert [name for name in beginnings() if name not in listed] == []
    assert (
        ringlab("init", "llama-fdsp").err
        == f"ringlab: unknown example 'llama-fdsp'; did you mean llama-fsdp? ({len(beginnings())} choices)\n"
    )


@pytest.mark.parametrize("name", [name for name, files in EXAMPLES.items() if files[0].endswith(".py")])
def test_commands_in_an_example_use_only_its_own_files(name: str) -> None:
    source = FOLDER / EXAMPLES[name][0]
    named = re.findall(r"ringlab \w+ (\S+\.(?:py|toml))", source.read_text())
    assert {Path(file).name for file in named} <= {*EXAMPLES[name]}


@pytest.mark.parametrize("name", ["llama-7b", "resnet50"])
def test_predict_suggests_init_when_a_scenario_is_a_model_name(ringlab: Ringlab, name: str) -> None:
    done = ringlab("predict", name)
    assert (done.status, done.out) == (2, "")
    assert f"{name} is a model" in done.err and "run `ringlab init llama-fsdp`" in done.err


def test_shell_completes_commands_scenarios_and_options() -> None:
    def offered(*words: str) -> list[str]:
        variables = {
            "_RINGLAB_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        code = "import sys; sys.argv = ['ringlab']; from ringlab.__main__ import main; main()"
        call = [sys.executable, "-c", code]
        return subprocess.run(
            call, env=os.environ | variables, capture_output=True, text=True, timeout=60
        ).stdout.split()

    assert offered("ringlab", "pre") == ["predict"]
    assert offered("ringlab", "predict", "two-") == ["two-p5", "two-racks"]
    assert offered("ringlab", "predict", "--tr") == ["--trace"]


def test_package_and_citation_file_state_the_same_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ringlab.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
