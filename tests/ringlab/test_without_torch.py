"""Predict, check, plan and draw in a process in which torch is not installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HIDING = """if True:
    import json, sys
    from importlib.machinery import PathFinder
    from pathlib import Path
    hidden, find = {"torch", "torchvision", "sklearn"}, PathFinder.find_spec
    PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in hidden else find(name, *rest)
    from ringlab import cli
    for words in json.loads(sys.argv[1]):
        sys.argv, status = ["ringlab", *words], 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
        print(f"\\nSTATUS {status}", file=sys.stderr, flush=True)
    assert not {*sys.modules} & hidden
"""
WORKS = (
    ("predict", "star8", "--report", "report.html"),
    ("predict", "two-p5"),
    ("init", "llama-fsdp", "-o", "llama.toml"),
    ("predict", "llama.toml", "--devices", "8"),
    ("search", "llama.toml", "--devices", "16"),
    ("init", "rent-resnet50", "-o", "rent.toml"),
    ("plan", "rent.toml"),
    ("init", "my-algorithm"),
    ("check", "my_algorithm.py"),
    ("animate", "two-racks", "-o", "player.html"),
    ("animate", "two-racks", "-o", "still.png"),
    ("plot", "step", "faults", "-o", "step.png"),
    ("explain", "two-p5"),
    ("profile", "llama-7b"),
    ("init", "student"),
    ("learn",),
    ("list",),
    ("run", "--help"),
    ("compare", "--help"),
)
REFUSED = (("run", "quickstart"), ("compare", "quickstart"), ("bench",), ("calibrate",),
           ("profile", "squeezenet1_0"), ("virtual", "student.py"), ("record", "student.py"))  # fmt: skip


def run_hiding_torch(folder: Path, commands: tuple[tuple[str, ...], ...]) -> list[list[str]]:
    """Run commands one after another in one process. Return each command's lines of standard error and its status."""
    call = [sys.executable, "-c", HIDING, json.dumps(commands)]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = list[list[str]]([[]])
    for line in filter(None, done.stderr.splitlines()):
        outputs[-1].append(line)
        if line.startswith("STATUS "):
            outputs.append([])
    return outputs[:-1]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[str]]:
    folder, commands = tmp_path_factory.mktemp("without"), WORKS + REFUSED
    runs = dict(zip(commands, run_hiding_torch(folder, commands), strict=True))
    assert {"report.html", "player.html", "still.png", "step.png"} <= {path.name for path in folder.iterdir()}
    return runs


@pytest.mark.parametrize("words", WORKS, ids=" ".join)
def test_predictions_work_without_torch(words: tuple[str, ...], outcomes: dict[tuple[str, ...], list[str]]) -> None:
    assert outcomes[words][-1] == "STATUS 0", outcomes[words]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_missing_torch_names_the_pip_extra(words: tuple[str, ...], outcomes: dict[tuple[str, ...], list[str]]) -> None:
    *_, line, status = outcomes[words]
    assert status == "STATUS 2"
    assert line == "ringlab: torch is not installed: pip install 'ringlab[torch]'"


def test_plot_without_matplotlib_names_the_pip_extra_to_install(tmp_path: Path) -> None:
    hiding = HIDING.replace('"sklearn"}', '"matplotlib"}')
    call = [sys.executable, "-c", hiding, json.dumps([["plot", "step", "faults", "-o", "step.png"]])]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "ringlab: step.png: a plot requires matplotlib: pip install 'ringlab[plots]'" in done.stderr
    assert not list(tmp_path.iterdir())
