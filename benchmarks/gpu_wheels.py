"""Download the packages of `make gpu` as wheels, and install them on a machine without a network.

    python benchmarks/gpu_wheels.py download [--to wheels] [--python 3.12] [--present FILE]
    python benchmarks/gpu_wheels.py install [--wheels wheels] [--into .venv-gpu]

``download`` fetches all packages that Ringlab and its tests need except torch, for Linux on x86-64. ``--present`` names
a file with the packages that the other machine already has, one per line, as ``pip freeze`` writes it. ``install``
creates a virtual environment on top of the current Python, which must have torch. Packages that are already installed
and recent enough are not changed. Only the standard library is needed.
"""

import argparse
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BROUGHT = ("torch", "torchvision")  # what the machine brings with it
FOR_TESTS = ("pytest", "hypothesis")
OLDEST_GLIBC, NEWEST_GLIBC = 5, 39  # minor versions of the platforms that wheels are built for: manylinux_2_17 ...
MEGABYTE = 1e6
INSTALL_S = 60.0  # an install takes so long at most; benchmarks/gpu.py counts with it


def normal(name: str) -> str:
    """Return the name of a package in its normal form (PEP 503).

    >>> normal("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def package(requirement: str) -> str:
    """Return the package that a requirement names.

    >>> package("scikit-learn>=1.5")
    'scikit-learn'
    """
    match = re.match(r"[\w.-]*\w", requirement.strip())
    return normal(match[0]) if match else ""


def requirements(project: dict[str, Any]) -> list[str]:
    """Return the requirements of the project and of its GPU tests, without the packages that the machine provides."""
    needed = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
    tests = [line for line in project["optional-dependencies"]["test"] if package(line) in FOR_TESTS]
    return [line for line in [*needed, *tests] if package(line) not in BROUGHT]


def read_requirements() -> list[str]:
    """Return the requirements that pyproject.toml states."""
    return requirements(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def target(python: str) -> list[str]:
    """Return pip's options for wheels of CPython ``python`` on Linux, x86-64."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(OLDEST_GLIBC, NEWEST_GLIBC + 1)]
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    for platform in ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", *platforms]:
        options += ["--platform", platform]
    return options


def resolve(wanted: Sequence[str], python: str) -> list[str]:
    """Return ``name==version`` of all wheels that ``wanted`` needs, including indirect dependencies."""
    call = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--target", "nowhere"]
    report = json.loads(pip(sys.executable, *call, *target(python), *wanted))
    wheels = [(wheel["metadata"]["name"], wheel["metadata"]["version"]) for wheel in report["install"]]
    return [f"{normal(name)}=={number}" for name, number in sorted(wheels)]


def pip(python: str, *arguments: str, timeout: float | None = None) -> str:
    """Run this Python's pip for the Python ``python``; return its output. Exit with pip's message if it fails."""
    call = [sys.executable, "-m", "pip", "--python", python, *arguments, "--disable-pip-version-check"]
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"pip {arguments[0]} took more than {timeout:.0f} s") from None
    if done.returncode:
        raise SystemExit(f"pip {arguments[0]} failed:\n{done.stderr.strip()}")
    return done.stdout


def without(pinned: Iterable[str], present: Iterable[str]) -> list[str]:
    """Return the pinned packages that are not in ``present``, a list of names with or without versions.

    >>> without(["numpy==2.5.1", "simpy==4.1.1"], ["NumPy==2.0", ""])
    ['simpy==4.1.1']
    """
    names = {package(line) for line in present}
    return [requirement for requirement in pinned if package(requirement) not in names]


def download(folder: Path, python: str, present: Path | None) -> None:
    """Fill ``folder`` with all wheels, or leave it unchanged. Existing wheels are replaced."""
    left_out = [] if present is None else present.read_text(encoding="utf-8").splitlines()
    chosen = without(resolve(read_requirements(), python), left_out)
    if not chosen:
        raise SystemExit(f"{present} names all that is needed: there is nothing to download")
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        pip(sys.executable, "download", "--quiet", "--no-deps", "--dest", str(new), *target(python), *chosen)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    wheels = sorted(folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / MEGABYTE
    print(f"{folder}: {len(wheels)} wheels for Python {python}, {size:.0f} MB; what is largest:")
    for wheel in sorted(wheels, key=lambda wheel: -wheel.stat().st_size)[:4]:
        print(f"  {wheel.stat().st_size / MEGABYTE:6.1f} MB  {wheel.name}")


def install(wheels: Path, into: Path) -> None:
    """Create the virtual environment ``into`` with all requirements, from ``wheels`` or, without this folder, by pip.

    Exits with status 1 and a message if torch is missing or too old, if no GPU is visible, or if torch would change.
    """
    before = torch_version()
    check_torch(before)
    check_visible_gpus()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", into], check=True)
    python = into / "bin" / "python"
    show_parent(into)
    source = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []
    pip(str(python), "install", "--quiet", "--no-compile", *source, *read_requirements(), timeout=INSTALL_S)
    call = [python, "-c", "from importlib.metadata import version; print(version('torch'))"]
    after = subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    if after != before:
        raise SystemExit(f"{into}: torch was {before} and would be {after}")
    print(f"{into}: ready, with torch {after} as it was")


def torch_version() -> str:
    """Return the version of torch of this Python. Exit with a message if it has none."""
    try:
        return version("torch")
    except PackageNotFoundError:
        raise SystemExit(f"{sys.executable} has no torch; name a Python that has: make gpu PYTHON=...") from None


def check_torch(present: str) -> None:
    """Exit with a message if the version of torch is older than the project needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [needed] = [line for line in project["optional-dependencies"]["torch"] if package(line) == "torch"]
    oldest = needed.partition(">=")[2].partition(",")[0]
    if numbers(present) < numbers(oldest):
        raise SystemExit(f"{sys.executable} has torch {present}; {needed} is needed")


def numbers(version: str) -> list[int]:
    """Return the numbers of a release, for comparisons.

    >>> numbers("2.15.0+cu132"), numbers("2.9")
    ([2, 15, 0], [2, 9])
    """
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def check_visible_gpus() -> None:
    """Exit with a message if CUDA_VISIBLE_DEVICES hides all GPUs: if it is empty, or begins with -1."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and (not visible.strip() or visible.strip().startswith("-")):
        raise SystemExit(f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides all GPUs; unset it, or name some of them")


def show_parent(into: Path) -> None:
    """Let the environment see this Python's packages with lower priority, also if this Python is an environment itself.

    ``--system-site-packages`` only shows the packages of the base Python, which may lack torch.
    """
    (site_packages,) = into.glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in site.getsitepackages()]
    (site_packages / "_beneath.pth").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Read the options, and download or install."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    downloads = commands.add_parser("download", help="fetch the wheels")
    downloads.add_argument("--to", type=Path, default=ROOT / "wheels", metavar="FOLDER")
    downloads.add_argument("--python", default="3.12", metavar="VERSION", help="of the other machine")
    downloads.add_argument("--present", type=Path, metavar="FILE", help="packages that it has, a name a line")
    installs = commands.add_parser("install", help="make the virtual environment")
    installs.add_argument("--wheels", type=Path, default=ROOT / "wheels", metavar="FOLDER")
    installs.add_argument("--into", type=Path, default=ROOT / ".venv-gpu", metavar="FOLDER")
    options = parser.parse_args()
    if options.command == "download":
        download(options.to, options.python, options.present)
    else:
        install(options.wheels, options.into)


if __name__ == "__main__":
    main()
