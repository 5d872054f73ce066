"""The wheel contains the scenarios and no tests."""

import subprocess
import sys
import zipfile

from command_line import ROOT
from test_imports import MAY_IMPORT

from course.files import LESSONS
from scenarios.toml_files import EXAMPLES


def test_wheel_has_scenarios_and_no_tests(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for scenario in (ROOT / "scenarios").glob("*.toml"):
        assert f"scenarios/{scenario.name}" in names
    assert {"ringlab/cli.py", "collectives/algorithms/ring.py", "viz/report.html.jinja"} <= set(names)
    assert {f"{package}/py.typed" for package in MAY_IMPORT} <= set(names)
    assert {f"scenarios/examples/{file}" for files in EXAMPLES.values() for file in files} <= set(names)
    assert {f"course/lessons/{lesson.file_name}" for lesson in LESSONS} <= set(names)
    left_out = ("tests/", "examples/", "benchmarks/")
    assert not [name for name in names if name.startswith(left_out)]
