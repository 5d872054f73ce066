"""Run all tests and measurements that need CUDA GPUs, in less than nine minutes.

    make gpu                                         install the packages of `make gpu-wheels`, then measure
    python benchmarks/gpu.py --plan                  list the parts and their time limits
    python benchmarks/gpu.py --backend gloo --small  a trial on CPUs

Each part is a process with a time limit. If one fails or hangs, it is ended, and the others still run. The results are
written after every part. With a single GPU, all ranks share it. Results are correct then, but only the times of the
part "one rank" are meaningful.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = {"nccl": ROOT / "benchmarks" / "results" / "gpu.json", "gloo": ROOT / "out" / "gpu-trial.json"}
PATIENCE = {"nccl": 1.0, "gloo": 4.0}  # times all limits: processors are slower, and nobody rents them by the minute
WHOLE_S = 480.0  # with the install of benchmarks/gpu_wheels.py less than nine minutes
OUTPUT_LINES = 60  # of each part's output are kept
ENDING_S = 1.0  # between asking a command to end and killing it
GPU_MARK = "\n@pytest.mark.gpu\n"
BENCHES = (("all_reduce", ("ring", "double_tree")), ("broadcast", ("binomial",)))  # collective, and its algorithms
ON_GPUS = "tests/realcomm/test_on_gpus.py"
CHECKS = {  # a part, its seconds, and the tests of ON_GPUS by a word of their names
    "trains": (45, "trains_on"),
    "strategies": (45, "strategies_on"),
    "record": (25, "record_on"),
    "groups": (30, "groups"),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Consecutive commands with a common limit of ``limit_s`` seconds."""

    name: str
    limit_s: float
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Asked:
    """The options of the command line."""

    backend: str
    ranks: int
    small: bool

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Smallest size, largest size and factor."""
        return ("1K", "4K", "4") if self.small else ("64K", "16M", "256")

    @property
    def repetitions(self) -> str:
        """Repetitions of each measurement."""
        return "3" if self.small else "15"


def make_plan(request: Asked, folder: Path) -> list[Part]:
    """Return the parts, the most reliable first. Their commands write results as JSON into ``folder``."""
    python, ranks = sys.executable, str(request.ranks)
    ringlab = (python, "-m", "ringlab")
    backend = ("--backend", request.backend)
    sizes = [str(1 << power) for power in ((10,) if request.small else (16, 24))]
    scenario = _scenario(request, request.ranks)
    against = (python, "benchmarks/against_gloo.py", *backend, "--ranks", ranks, "--sizes", *sizes)
    algorithms = ("ring", "double_tree")
    calibrate = (*ringlab, "calibrate", *scenario, "--accept-noise")  # a rented machine is measured once, noise and all
    options = ("--repetitions", request.repetitions, "-o", str(folder / "beside.json"))
    parts = [
        Part("machine", 15, ((python, __file__, "--describe", str(folder / "machine.json")),)),
        *(Part(name, limit, (_tests(ON_GPUS, "-k", word),)) for name, (limit, word) in CHECKS.items()),
        Part("tests", 45, (_tests(*(file for file in gpu_tests() if file != ON_GPUS)),)),
        Part("one rank", 40, tuple(_one_rank(request, folder))),
        Part("calibration", 55, ((*calibrate, *backend, *_json(folder, "calibration")),)),
        Part("bench", 20, tuple(_bench(request, collective, ranks, folder) for collective in BENCHES)),
        Part("beside", 20, ((*against, "--algorithm", *algorithms[: 1 if request.small else None], *options),)),
    ]
    for sync in ("naive", "ring", "ddp"):
        setting = ("--set", f'training.gradient_sync=["{sync}"]')
        parts.append(
            Part(sync, 32, ((*ringlab, "compare", "--thorough", *scenario, *setting, *backend, *_json(folder, sync)),))
        )
    return [replace(part, limit_s=part.limit_s * PATIENCE[request.backend]) for part in parts]


def _tests(*chosen: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-m", "gpu", "-v", "-rs", "--no-header", *chosen)


def _one_rank(request: Asked, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands of one rank with its own GPU: a profile, one epoch of training, and its resumption."""
    ringlab, device = (sys.executable, "-m", "ringlab"), "cuda" if request.backend == "nccl" else "cpu"
    model, batch = ("resnet18", "8") if request.small else ("resnet34", "32")
    yield (*ringlab, "profile", model, "--batch-size", batch, "--device", device, *_json(folder, "one rank.profile"))
    checkpoints = f'training.checkpoints="{folder / "kept"}"'
    changes = ['training.gradient_sync=["ring"]', checkpoints]
    changes += ["training.batch_size=8", "training.images=64"] if request.small else []
    changed = (*(word for change in changes for word in ("--set", change)), "--backend", request.backend)
    for name, epochs, resume in (("first epoch", 1, ()), ("resumed", 2, ("--resume", "auto"))):
        more = ("--set", f"training.epochs={epochs}", *resume, *_json(folder, f"one rank.{name}"))
        yield (*ringlab, "run", *_scenario(request, 1), *changed, *more)


def _scenario(request: Asked, ranks: int) -> tuple[str, ...]:
    changes = [f"cluster.world_size={ranks}"]
    changes += ['training.model="resnet18"', "training.batch_size=64", "training.epochs=1"] if request.small else []
    return ("benchmarks/gpu_training.toml", *(word for change in changes for word in ("--set", change)))


def _json(folder: Path, name: str) -> tuple[str, str]:
    return "--json", str(folder / f"{name}.json")


def _bench(request: Asked, measured: tuple[str, Sequence[str]], ranks: str, folder: Path) -> tuple[str, ...]:
    collective, algorithms = measured
    begin, end, factor = request.sizes
    names = [word for name in algorithms[: 1 if request.small else None] for word in ("--algorithm", name)]
    options = ("-b", begin, "-e", end, "-f", factor, "-n", request.repetitions, "-w", "3", "--backend", request.backend)
    which = ("--collective", collective, *names, "--ranks", ranks)
    return (sys.executable, "-m", "ringlab", "bench", *which, *options, *_json(folder, f"bench.{collective}"))


def gpu_tests() -> list[str]:
    """Return the files that have tests for a GPU."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if GPU_MARK in file.read_text(encoding="utf-8")]


def run_part(part: Part, folder: Path, limit_s: float) -> Row:
    """Run the commands of a part within ``limit_s`` seconds; return the result."""
    begin, output = time.monotonic(), list[str]()
    status = "done"
    for command in part.commands:
        ended, lines = run_command(command, folder, begin + limit_s - time.monotonic())
        output += [f"$ {' '.join(command[1:])}", *lines]
        status = ended if status == "done" else status
    seconds = round(time.monotonic() - begin, 1)
    return {"part": part.name, "status": status, "seconds": seconds, "limit_s": round(limit_s, 1), "output": output}


def run_command(command: Sequence[str], folder: Path, limit_s: float) -> tuple[str, list[str]]:
    """Run one command with a time limit; return how it ended and its output lines."""
    if limit_s <= 0:
        return "not started: no time was left", []
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONUNBUFFERED": "1", "COLUMNS": "160",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # whatever else the machine has must not change a test
    }  # fmt: skip
    with (folder / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
            ended = "done" if status == 0 else f"failed with status {status}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {limit_s:.0f} s"
        finally:
            end_session(process)
        output.seek(0)
        return ended, output.read().splitlines()


def end_parts_on_termination() -> None:
    """On SIGTERM, end the running part before this process, as on Ctrl-C. Otherwise the part would keep the GPU."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """End a command and all processes of its session, first by a signal, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(ENDING_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def read_tests(lines: Sequence[str]) -> dict[str, str]:
    """Return the result of each test by name, from pytest's output with ``-v``, also if the run was stopped.

    >>> read_tests(["tests/test_a.py::test_b[2] PASSED     [ 50%]", "= 1 passed ="])
    {'tests/test_a.py::test_b[2]': 'passed'}
    """
    matches = (re.match(r"(\S+::.+?) (PASSED|FAILED|SKIPPED|ERROR)\b", line) for line in lines)
    return {match[1]: match[2].lower() for match in matches if match}


def collect(row: Row, folder: Path) -> Row:
    """Return the row of a part with the JSON that its commands wrote, by name if there are several."""
    name, output = row["part"], row["output"]
    row = row | {"output": output[-OUTPUT_LINES:]}
    if name in (*CHECKS, "tests"):
        return row | {"found": read_tests(output)}
    files = sorted({*folder.glob(f"{name}.json"), *folder.glob(f"{name}.*.json")})
    results = {file.stem.removeprefix(f"{name}."): json.loads(file.read_text(encoding="utf-8")) for file in files}
    return row | {"found": results.get(name, results) or None}


def measure(parts: Sequence[Part], folder: Path, within_s: float, write: Callable[[list[Row]], None]) -> list[Row]:
    """Run the parts one after the other, and ``write`` all results after each.

    A part may also use the time that earlier parts have left over, but not the time of later parts.
    """
    rows, end = list[Row](), time.monotonic() + within_s
    for number, part in enumerate(parts):
        print(f"{part.name} ...", flush=True)
        of_others = sum(other.limit_s for other in parts[number + 1 :])
        row = run_part(part, folder, end - of_others - time.monotonic())
        rows.append(collect(row, folder))
        write(rows)
        print(f"  {row['status']}, {row['seconds']} s", flush=True)
        if row["status"] != "done":
            print("\n".join(f"  | {line}" for line in row["output"][-12:]), flush=True)
    return rows


def describe_gpus() -> Row:
    """Return the environment with the GPUs, their driver, CUDA and NCCL."""
    import torch

    from collectives.records.environment import describe_measurement, installed_version

    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.split()
    except (OSError, subprocess.SubprocessError):
        driver = []
    return {
        **describe_measurement(),
        "pytest": installed_version("pytest"),
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.total_memory} for gpu in gpus],
        "driver": driver[0] if driver else None,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if gpus else None,
    }


def describe_commit() -> str:
    """Return the commit of the code, with "and changes" if files differ from it; empty without a repository or git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty= and changes"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs that the driver's program lists and this process may use."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count if visible is None else min(count, sum(name.strip() not in ("", "-1") for name in visible.split(",")))


def show_plan(parts: Sequence[Part], within_s: float) -> None:
    """Print the parts, their limits and their commands."""
    for part in parts:
        print(f"{part.name}: {part.limit_s:.0f} s, and what those before have left over")
        for command in part.commands:
            print(f"  {' '.join(command[1:])}")
    print(f"limits of {sum(part.limit_s for part in parts):.0f} s in all; all of it ends within {within_s:.0f} s")


def write_results(path: Path, request: Asked, rows: list[Row]) -> None:
    """Write all results so far into the file. The file is always complete."""
    from collectives.output_files import write_text
    from collectives.records.environment import describe_measurement

    machine = next((row["found"] for row in rows if row["part"] == "machine"), None) or describe_measurement()
    answer = {"schema_version": 1, "kind": "benchmark", "commit": describe_commit(), "environment": machine}
    answer |= {"asked": asdict(request), "parts": rows}
    write_text(path, json.dumps(answer, indent=1, allow_nan=False) + "\n")


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: a trial on the CPU")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="ranks of what is measured; default: 2 on one GPU, else all GPUs"
    )
    parser.add_argument("--small", action="store_true", help="the least that runs all the code")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="only these; --plan lists them")
    parser.add_argument("--within", type=float, metavar="SECONDS", help=f"end after so long, with nccl {WHOLE_S:.0f}")
    parser.add_argument("--plan", action="store_true", help="show what would be done, and end")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="file of results")
    parser.add_argument("--describe", type=Path, help=argparse.SUPPRESS)  # of the part "machine"
    options = parser.parse_args()
    if options.within is None:
        options.within = WHOLE_S * PATIENCE[options.backend]
    if options.ranks is not None and options.ranks < 1:
        parser.error(f"--ranks must be 1 or more, not {options.ranks}")
    return options


def main() -> None:
    """Read the options, and measure. The exit status is 1 if a part failed."""
    sys.path.insert(0, str(ROOT))
    end_parts_on_termination()
    options, gpus = read_options(), count_gpus()
    if options.describe:
        options.describe.write_text(json.dumps(describe_gpus()), encoding="utf-8")
        return
    request = Asked(options.backend, options.ranks or max(2, gpus), options.small)
    with tempfile.TemporaryDirectory(prefix="ringlab-gpu-") as name:
        parts = make_plan(request, Path(name))
        unknown = sorted(set(options.parts or ()) - {part.name for part in parts})
        if unknown:
            raise SystemExit(f"--parts {unknown[0]}: there are {', '.join(part.name for part in parts)}")
        parts = [part for part in parts if not options.parts or part.name in options.parts]
        if options.plan:
            show_plan(parts, options.within)
            return
        if options.backend == "nccl" and not gpus:
            raise SystemExit("there is no NVIDIA GPU here (nvidia-smi lists none); --backend gloo --small tries it out")
        path = options.output or RESULTS[options.backend]
        rows = measure(parts, Path(name), options.within, lambda known: write_results(path, request, known))
    print(path)
    raise SystemExit(any(row["status"] != "done" for row in rows))


if __name__ == "__main__":
    main()
