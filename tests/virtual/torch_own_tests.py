"""Run torch's own tests of process groups on virtual ranks and on real gloo ranks, and list those that pass.

    python tests/virtual/torch_own_tests.py     # takes half an hour; writes the JSON file next to this file

The file lists the tests that pass on three gloo processes. A test that fails on virtual ranks has a hand-written
reason.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import simcomm
from collectives.errors import RunFailed
from virtual.hosting.host import VirtualHost
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram

HERE = Path(__file__).parent
PROGRAM = HERE / "virtual_programs" / "torch_test.py"
KNOWN = HERE / "torch_own_tests.json"
MODULE = "torch.testing._internal.distributed.distributed_test"
RANKS = 3
SECONDS = 60.0  # time limit of a test
LIST = f"""if True:
    from {MODULE} import DistributedTest as tests
    print(*sorted(name for name in dir(tests._DistTestBase) if name.startswith("test_")))
"""


@contextmanager
def torch_host() -> Iterator[VirtualHost]:
    """Yield a host that has imported torch's tests, with the environment variables that they read."""
    with tempfile.TemporaryDirectory() as folder:
        before = dict(os.environ)
        os.environ.update(surroundings(folder))
        try:
            with VirtualHost(("torch._dynamo", "torch.distributed.fsdp", MODULE)) as host:
                yield host
        finally:
            os.environ.clear()
            os.environ.update(before)


def surroundings(folder: str) -> dict[str, str]:
    return {"BACKEND": "gloo", "TEMP_DIR": folder, "WORLD_SIZE": f"{RANKS}", "OMP_NUM_THREADS": "1"}


def run_virtually(host: VirtualHost, name: str) -> str:
    """Run a test on virtual ranks. Return "passed", "skipped" or the error."""
    output: list[str] = []
    cluster = simcomm.star(RANKS, "10 Gbit/s", "5 us")
    options = VirtualOptions(UserProgram(str(PROGRAM), (name,)), RANKS, cluster, timing="live")
    try:
        outcome = host.run(options, timeout=SECONDS, show=lambda stream, text: output.append(text)).outcome
    except RunFailed as error:
        return str(error)
    if outcome.findings:
        return "\n".join(finding.text for finding in outcome.findings)
    return judge("".join(output))


def judge(output: str) -> str:
    """Return the result of a test from the output of its ranks: "passed", "skipped" or the end of the output."""
    if output.count("PASSED") == RANKS:
        return "passed"
    return "skipped" if "SKIPPED" in output else f"no rank reported a result: {output[-300:]}"


def run_really(name: str) -> str:
    """Run a test on real gloo processes. Return "passed", "skipped" or "failed"."""
    with tempfile.TemporaryDirectory() as folder:
        nproc = f"--nproc-per-node={RANKS}"
        call = [sys.executable, "-m", "torch.distributed.run", nproc, "--standalone", str(PROGRAM)]
        env = {**os.environ, **surroundings(folder), "GLOO_SOCKET_IFNAME": "lo"}
        try:
            done = subprocess.run([*call, name], env=env, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "failed"
    return judge(done.stdout) if done.returncode == 0 else "failed"


def main() -> None:
    """Run all tests and write the results. Reasons of known failures are kept."""
    names = subprocess.run(
        [sys.executable, "-c", LIST],
        env={**os.environ, **surroundings(tempfile.gettempdir())},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    known = json.loads(KNOWN.read_text())
    known["passed on gloo"] = [name for name in names if run_really(name) == "passed"]
    with torch_host() as host:
        failed = [name for name in known["passed on gloo"] if run_virtually(host, name) != "passed"]
    known["fail on virtual ranks"] = {name: known["fail on virtual ranks"].get(name, "") for name in failed}
    KNOWN.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
