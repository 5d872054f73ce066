"""Ranks of this machine that torchrun starts to be recorded, and the file that their logs are joined to."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from collectives.errors import RunFailed
from collectives.records.recording import Recording
from realcomm.recording.rank_log import join_logs, read_logs

GRACE_S = 10.0  # that torchrun has to end its ranks


def parts_folder(output: Path) -> Path:
    """Return the folder of the ranks' own files, which is that of one start: its store has a port of its own."""
    return output.with_name(f".{output.name}.{os.environ.get('MASTER_PORT', '0')}.parts")


def join_parts(folder: Path, output: Path, world_size: int, timeout: float) -> Recording:
    """Write the recording of all ranks, and remove their own files. Raise RunFailed where one has left none."""
    recording = join_logs(read_logs(folder, world_size, timeout))
    recording.write(output)
    shutil.rmtree(folder, ignore_errors=True)
    return recording


def start_ranks(ranks: int, command: Sequence[str], timeout: float) -> None:
    """Run a command of Ringlab on so many ranks of this machine under torchrun, on loopback only.

    Raises RunFailed where it fails, or has not ended after ``timeout`` seconds; no process is left then.
    """
    options = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "ringlab", *command]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    started = subprocess.Popen(torchrun, env=environment, start_new_session=True)
    try:
        status = started.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"the {ranks} ranks have not ended after {timeout:g} s, and were ended") from error
    finally:
        _end(started)
    if status:
        raise RunFailed(f"torchrun ended with status {status}; the ranks' own messages are above")


def _end(started: "subprocess.Popen[bytes]") -> None:
    """End what torchrun has started, torchrun last."""
    if started.poll() is None:
        started.terminate()
        try:
            started.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
