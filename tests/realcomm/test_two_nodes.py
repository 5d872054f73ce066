"""Two real nodes: Slurm's batch file, with a network namespace of this machine for each node."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from warm_ranks import run_each

import simcomm
from collectives.errors import RunFailed
from realcomm.emulation.network import EmulatedNetwork, emulate
from realcomm.emulation.plan import INTERFACE
from realcomm.watching.log_folder import read_metrics
from ringlab.commands.slurm import JobOptions, SlurmOptions, make_job, write_batch_file
from ringlab.scenario import load

TESTS = Path(__file__).parent
SCENARIO = """
[cluster]
topology = "star"
hosts = 2
bandwidth = "50 Mbit/s"
latency = "0 us"
[training]
gradient_sync = ["ring"]
batch_size = 4
epochs = 2
checkpoints = "kept"
"""
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for i in 0 1; do
  node=NODE$i address=ADDRESS$i
  SLURM_NODEID=$i PET_LOCAL_ADDR=${!address} ${!node} "$@" > "node$i.log" 2>&1 &
done
for i in 0 1; do wait -n || { status=$?; kill $(jobs -p); exit $status; }; done
"""


@pytest.fixture
def network() -> Iterator[EmulatedNetwork]:
    """Two emulated nodes; skips the test where that is impossible."""
    try:
        emulated = emulate(simcomm.star(2, "50 Mbit/s", "0 us"))
    except RunFailed as error:
        pytest.skip(str(error))
    with emulated:
        yield emulated


@pytest.mark.slow  # eight processes import torch
@pytest.mark.namespaces
def test_two_nodes_resume_after_a_rank_is_killed(tmp_path: Path, network: EmulatedNetwork):
    scenario = tmp_path / "two.toml"
    scenario.write_text(SCENARIO)
    job = make_job(load(scenario), str(scenario), JobOptions(backend="gloo", log_dir="logs", max_restarts=1))
    assert (job.nodes, job.ranks_per_node, job.resumes) == (2, 1, True)
    text = write_batch_file(job, SlurmOptions(folder=str(tmp_path), interface=INTERFACE))
    (tmp_path / "job.sbatch").write_text(text.replace("-m ringlab run ", "-m small_ringlab run "))
    for name, script in (("srun", SRUN), ("scontrol", '#!/bin/bash\nprintf "$ADDRESS0\\n$ADDRESS1\\n"\n')):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "two", "PYTHONPATH": f"{TESTS.parents[1]}:{TESTS}"}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}:/usr/sbin:/sbin"
    for number, (place, host) in enumerate(zip(network.namespaces, network.plan.hosts, strict=True)):
        kinds = ("--user", "--net")[-len(place.files) :]
        enter = [f"{kind}={file}" for kind, file in zip(kinds, place.files, strict=True)]
        environment[f"NODE{number}"] = " ".join(["nsenter", "--preserve-credentials", *enter])
        environment[f"ADDRESS{number}"] = network.plan.address(host)
    call = ["bash", str(tmp_path / "job.sbatch")]
    done = subprocess.run(
        call, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200, check=False
    )  # fmt: skip
    logs = [(tmp_path / f"node{number}.log").read_text() for number in range(2)]
    assert (done.returncode, done.stdout) == (0, ""), (done.stderr, *logs)
    output = "\n".join(logs)
    assert "kept/ring/step-00000003.pt (step 3, epoch 2)" in output and "no complete checkpoint in kept/ring" in output
    rows = read_metrics(tmp_path / "logs" / "metrics.jsonl", "ring", "step")
    assert [(row["step"], row["attempt"]) for row in rows] == [*((number, 0) for number in range(3)),
        *((number, 1) for number in range(3, 6))]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "logs").glob("rank-*")) == ["rank-0.log", "rank-1.log"]


BARE = """
import os, socket, sys, time
from realcomm.launching.namespaces import _call, enter
enter(os.environ["NAMESPACES"].split())
_call("unshare", 0x04000000)  # CLONE_NEWUTS
socket.sethostname(os.environ["ADDRESS"])  # gloo listens where the host's name leads to, as in a pod
import numpy as np
import realcomm, simcomm
from realcomm.launching.torchrun import spans_nodes
from collectives.errors import InputError, RunFailed
buffers = [np.arange(1000.0) * (rank + 1) for rank in range(2)]
try:
    realcomm.run("all_reduce/ring", simcomm.this_machine(2), buffers=buffers, repetitions=1, timeout=60)
    assert spans_nodes() and "GLOO_SOCKET_IFNAME" not in os.environ
except (InputError, RunFailed) as error:
    time.sleep(1)  # rank 0 has the store, from which rank 1 may still read
    sys.exit(f"{type(error).__name__}: {error}")
print(all((buffer == np.arange(1000.0) * 3).all() for buffer in buffers))
"""


@pytest.mark.namespaces
def test_two_nodes_are_detected_when_local_world_size_is_wrong(tmp_path: Path, network: EmulatedNetwork):
    """They have the smallest environment, whose LOCAL_WORLD_SIZE is wrong, as that of PyTorchJob."""
    (tmp_path / "bare.py").write_text(BARE)
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("LOCAL_", "TORCHELASTIC"))}
    addresses = [network.plan.address(host) for host in network.plan.hosts]
    usual["RES_OPTIONS"] = "timeout:1 attempts:1"  # no name server answers there
    usual |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": addresses[0], "MASTER_PORT": "29500"}
    ranks = [
        {**usual, "RANK": str(rank), "ADDRESS": address, "NAMESPACES": " ".join(place.files)}
        for rank, (place, address) in enumerate(zip(network.namespaces, addresses, strict=True))
    ]
    outcomes = run_each(ranks, tmp_path, tmp_path / "bare.py")
    assert [(status, output) for status, output, _ in outcomes] == [(0, "True\n")] * 2, outcomes


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start nodes: torchrun with one rank each, with logs. End all of them afterwards."""
    started = list[subprocess.Popen]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    call = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=2"]
    call += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two", "--local-addr=127.0.0.1"]
    call += [f"--log-dir={tmp_path / 'torchrun'}"]
    scenario = ["-m", "small_ringlab", "run", "two.toml", "--elastic", "--resume=auto", "--log-dir=logs"]

    def start(name: str, **variables: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": f"{TESTS.parents[1]}:{TESTS}", **variables}
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        with (tmp_path / f"{name}.log").open("w") as log:
            is_host = int(name == "node0")  # the one that stays has torchrun's store
            call_of_node = [*call, f"--rdzv-conf=last_call_timeout=8,is_host={is_host}", *scenario]
            started.append(
                subprocess.Popen(
                    call_of_node, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
        return started[-1]

    yield start
    for node in started:
        with suppress(ProcessLookupError):
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()


@pytest.mark.slow  # the same, and then until a new node has come
def test_restarted_node_rejoins_the_training(tmp_path: Path, nodes: Callable[..., subprocess.Popen]):
    """torchrun restarts the ranks on both nodes, which repeats the steps since the last checkpoint."""
    text = SCENARIO.replace("batch_size = 4", "global_batch_size = 8").replace("epochs = 2", "epochs = 100")
    (tmp_path / "two.toml").write_text(f"[cluster]\npreset = 'this-machine'\n[training]{text.split('[training]')[1]}")
    metrics = tmp_path / "logs" / "metrics.jsonl"
    first, _ = (nodes(f"node{number}", LOST_NODE=str(number), WAITS="1") for number in range(2))
    deadline = time.monotonic() + 200
    while not (metrics.exists() and len(read_metrics(metrics, "ring", "step")) > 8):  # the first is alone
        assert first.poll() is None and time.monotonic() < deadline, (tmp_path / "node0.log").read_text()
        time.sleep(0.5)
    second = nodes("again", LOST_NODE="0", WAITS="1")
    statuses, output = (first.wait(200), second.wait(60)), (tmp_path / "node0.log").read_text()
    assert statuses == (0, 0), output
    rows = read_metrics(metrics, "ring", "step")
    assert [row["step"] for row in rows] == list(range(300))
    attempts = [row["attempt"] for row in rows]
    assert attempts == sorted(attempts) and len(set(attempts)) == 3, set(attempts)
    plain = " ".join(output.split())
    assert "on 1 ranks instead of 2" in plain and "on 2 ranks instead of 1" in plain
