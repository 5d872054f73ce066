"""Misbehaving model files of users: each ends in its subprocess, and the message names the line."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collectives.errors import InputError
from collectives.programs.sandbox import ProgramFile
from collectives.training.workload import Training
from realcomm.profiling.tracing import trace_model
from realcomm.training.model_files import ask_file, check_model, count_parameters
from ringlab.cli import app

MODEL = """import os
def loop():
    while True: pass
def deep():
    return deep()
def large():
    return [bytes(1 << 30)]
def told():
    return {"parameters": 3}
"""
ENDED = {  # of the limits that test_hostile_programs.py has, one of each kind
    "loop": (r"longer than 1 s \(RINGLAB_PROGRAM_SECONDS=10 would", 3),
    "deep": ("RecursionError", 5),
    "large": (r"more than 512 MiB of memory \(RINGLAB_PROGRAM_MEMORY", 7),
}


def call_in_worker(path: Path, name: str) -> Any:
    """Replaces tracing with torch, which takes seconds to import."""
    code = compile(path.read_text(), str(path), "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    return names[name]()


HERE = f"{__name__}:call_in_worker"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGLAB_PROGRAM_SECONDS", "1")
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize("name", ENDED)
def test_model_file_that_exceeds_limits_is_named_with_its_line(name: str, file: Path) -> None:
    message, line = ENDED[name]
    with pytest.raises(InputError, match=f"^model '.*mine.py:{name}'.*({message})") as caught:
        ask_file(f"{file}:{name}", HERE, [], (__name__,))
    assert line is None or str(caught.value).endswith(f"(line {line} of mine.py)")
    assert ask_file(f"{file}:told", HERE, [], (__name__,))[1] == {"parameters": 3}


@pytest.mark.parametrize(
    ("sent", "message"), [(3, "sent an invalid reply"), ({"layers": 3}, "not a modelprofile"), (None, "not an object")]
)
def test_profile_from_a_model_file_is_validated(
    sent: object, message: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realcomm.profiling.tracing.ask_file", lambda *_: (ProgramFile(file), sent))
    with pytest.raises(InputError, match=message):
        trace_model(f"{file}:told")


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/proc/self/mem")])
def test_model_file_must_be_a_regular_file(made: Any, tmp_path: Path) -> None:
    made(tmp_path / "mine.py")
    with pytest.raises(InputError, match=r"regular file|Permission|kernel"):
        check_model(Training(None, model=f"{tmp_path}/mine.py:build"))


def test_model_file_is_built_under_limits_before_ranks_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("import torch\ndef build():\n    while True: pass\n")
    with pytest.raises(InputError, match=r"longer than 1 s .* \(line 3 of mine.py\)"):
        check_model(Training(None, model=f"{file}:build"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_model(Training(None, model=f"{file}:build"))  # under torchrun, only rank 0 checks it


def test_parameters_are_counted_on_the_meta_device(file: Path) -> None:
    head = "import torch\ndef build():\n    model = torch.nn.Linear(3, 4)\n    model.bias.requires_grad = False\n"
    file.write_text(f"{head}    return model\n")
    training = Training(None, model=f"{file}:build")
    assert count_parameters(training).parameters == 12
    assert count_parameters(replace(training, parameters=7)).parameters == 7  # ranks say that it is another number
    assert count_parameters(Training(None)) == Training(None)
    file.write_text(f"{head}    model.weight.sum().item()\n    return model\n")
    with pytest.raises(
        InputError, match=r"RuntimeError: .* \(line 5 of mine.py\); if the model cannot be built without data, set"
    ):
        count_parameters(training)


@pytest.mark.parametrize("command", ["profile mine.py:loop -o mine.py", "predict a.toml --json mine.py"])
def test_model_file_is_not_overwritten(command: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    Path("a.toml").write_text(
        '[cluster]\ntopology = "star"\nhosts = 4\nbandwidth = "1 Gbit/s"\nlatency = "1 us"\n[training]\n'
        'model = "mine.py:loop"\nparameters = 5\ngradient_sync = ["ring"]\n'
        '[training.compute]\nforward = "1 ms"\nbackward = "1 ms"\noptimizer = "1 ms"\n'
    )
    done = CliRunner().invoke(app, command.split())
    assert isinstance(done.exception, InputError) and "mine.py is an input of this command" in str(done.exception)
    assert file.read_text() == MODEL
