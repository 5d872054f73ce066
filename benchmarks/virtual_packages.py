"""Run distributed tests and examples of public packages on virtual ranks, and on gloo processes for comparison.

    python benchmarks/virtual_packages.py FOLDER [--dependencies FOLDER] [--only NAME ...] [-o FILE]

FOLDER contains the unpacked source distributions of the packages, each in a folder with the package's name. The folder
of ``--dependencies`` was written by ``pip install --target``. Ringlab contains no code of these packages. fairscale
reads MNIST from the temporary directory.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from collectives.output_files import write_text
from collectives.records.environment import describe_measurement

RESULTS = Path(__file__).parent / "results" / "virtual_packages.json"
TIMEOUT_S = 150
SCRIPTS = "src/accelerate/test_utils/scripts/"
IDIST = "tests/ignite/distributed/check_idist_parallel.py"
OSS = "benchmarks/oss.py --cpu --gloo --world_size 2 --epochs 1 --model resnet18 --batch_size 8 --optim_type"
MUON = "-m pytest -x -q -o addopts= -p no:cacheprovider tests/optimizers/test_muon.py"
HELPER_TESTS = (
    "test_broadcast_tensor_or_objects",
    "test_gather_all_objects",
    "test_cat_all",
    "test_main_process_first",
)
AVALANCHE = "-m unittest tests.distributed.test_distributed_helper.DistributedHelperTests."


class Case(NamedTuple):
    """A program of a package; ``ranks`` 0: it starts its processes itself."""

    package: str
    folder: str
    program: str
    ranks: int
    path: str = ""  # subfolder that contains the package's modules
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def _accelerate(name: str, *options: str) -> Case:
    environment = () if options else (("ACCELERATE_USE_CPU", "1"),)
    return Case("accelerate 1.15.0", "accelerate", f"{SCRIPTS}{name}.py", 2, "src", options, environment)


CASES = (
    _accelerate("test_ops"),
    _accelerate("test_sync"),
    _accelerate("test_script"),
    _accelerate("test_distributed_data_loop"),
    _accelerate("test_ddp_comm_hook"),
    _accelerate("test_ops", "--gpu"),
    _accelerate("test_sync", "--gpu"),
    _accelerate("test_ddp_comm_hook", "--gpu"),
    Case("pytorch-ignite 0.5.5", "pytorch_ignite", f"{IDIST} --backend=gloo", 4),
    Case("pytorch-ignite 0.5.5", "pytorch_ignite", f"{IDIST} --backend=gloo --nproc_per_node=4", 0),
    Case("fairscale 0.4.13", "fairscale", f"{OSS} oss_ddp", 0, "benchmarks"),
    Case("fairscale 0.4.13", "fairscale", f"{OSS} oss_sharded_ddp", 0, "benchmarks"),
    Case("pytorch-optimizer 4.1.0", "pytorch_optimizer", MUON, 0),
    *(
        Case("avalanche-lib 0.6.0", "avalanche_lib", AVALANCHE + name, 2, environment=(("DISTRIBUTED_TESTS", "1"),))
        for name in HELPER_TESTS
    ),
)


def run_command(command: list[str], case: Case, folder: Path, dependencies: Path | None) -> tuple[int | None, str]:
    """Return the exit status and the output. The status is None if the program exceeds the time limit."""
    home = folder / case.folder
    paths = [home / case.path, home, *([dependencies] if dependencies else []), Path(__file__).parents[1]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment |= dict(case.environment)
    with subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its processes
            return None, process.communicate()[0]
        return process.returncode, output


def run_virtually(case: Case, folder: Path, dependencies: Path | None) -> dict[str, Any]:
    """Return the exit status and the findings on virtual ranks."""
    with TemporaryDirectory() as scratch:
        result = Path(scratch, "result.json")
        command = [sys.executable, "-m", "ringlab", "virtual", "--ranks", str(case.ranks), "--timeout", "120"]
        command += [*case.options, "--json", str(result), *case.program.split()]
        status, output = run_command(command, case, folder, dependencies)
        findings = json.loads(result.read_text())["findings"] if result.exists() else []
    titles = [f"{finding['kind']}: {finding['title']}" for finding in findings]
    return {"virtual_status": status, "findings": titles, "virtual_end": output.splitlines()[-12:]}


def run_on_gloo(case: Case, folder: Path, dependencies: Path | None) -> dict[str, Any]:
    """Return the outcome on real gloo processes, and the end of the output. Programs that need GPUs are not run."""
    if "--gpu" in case.options:
        return {"gloo": "no GPU"}
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"] if case.ranks else []
    status, output = run_command([sys.executable, *launch, *case.program.split()], case, folder, dependencies)
    outcome = "hangs" if status is None else "passes" if status == 0 else "fails"
    return {"gloo": outcome, "gloo_end": output.splitlines()[-12:]}


def main() -> None:
    """Run all programs, print and write their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dependencies", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="Parts of the names of programs.")
    parser.add_argument("--no-gloo", action="store_true", help="Run on virtual ranks only.")
    parser.add_argument("-o", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if options.only and not any(word in f"{case.folder} {case.program}" for word in options.only):
            continue
        row = {"package": case.package, "program": case.program, "ranks": case.ranks, "options": [*case.options]}
        row |= run_virtually(case, options.folder, options.dependencies)
        if not options.no_gloo:
            row |= run_on_gloo(case, options.folder, options.dependencies)
        print(json.dumps(row), flush=True)
        rows.append({key: value for key, value in row.items() if not key.endswith("_end")})
    write_text(options.o, json.dumps({"environment": describe_measurement(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
