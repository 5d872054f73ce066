"""The code for NCCL, on simulated GPUs or on gloo."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from warm_ranks import run_ranks

import realcomm
from collectives.errors import InputError
from realcomm.execution import group_memory
from realcomm.execution.device_clock import HostClock
from realcomm.functions import tensor_collectives
from realcomm.launching import group, hangs, torchrun, worker
from realcomm.launching.failures import RankFailed
from realcomm.launching.launcher import check_launch, launch
from realcomm.profiling.measured import measure
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from realcomm.training.stopwatch import Stopwatch
from ringlab.commands import doctor


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Rank 5 of a group with both backends on hosts with four GPUs; lists the chosen devices."""
    chosen: list[object] = []
    dist.init_process_group("cpu:gloo,cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    monkeypatch.setattr(dist, "get_rank", lambda: 5)
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cpu:gloo,cuda:nccl")
    simulate_gpus(monkeypatch, 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torchrun, "keep_freed_memory", lambda: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    yield chosen
    dist.destroy_process_group()


def simulate_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def test_rank_of_a_users_group_gets_its_own_gpu(four_gpus: list[object], monkeypatch: pytest.MonkeyPatch):
    """Also with gloo and nccl in one group, and whether or not the user has chosen a GPU."""
    assert group.own_device() == torch.device("cuda", 1), "rank 5 is the second on the second host"
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    torchrun._join("gloo", torch.get_num_threads(), 60)
    assert four_gpus == [torch.device("cuda", 3)]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert group.own_device() == torch.device("cuda", 2), "what the user has chosen stays"
    buffers: list[torch.device] = []
    with monkeypatch.context() as patch:
        patch.setattr(tensor_collectives, "run_collective", lambda *arguments: arguments[2](0, 2))
        patch.setattr(torch, "empty", lambda *sizes, device: buffers.append(device))
        realcomm.barrier()
    assert buffers == [torch.device("cuda", 2)]
    monkeypatch.setattr(dist, "get_backend_config", lambda group=None: "cpu:gloo,cuda:gloo")
    assert group.own_device() == torch.device("cpu"), "gloo works on CPUs"


@pytest.mark.parametrize(
    ("visible", "own_host"),
    [(["c"], False), (["a", "b", "c"], False), (["a", "b"], True)],
    ids=["its own GPU", "all GPUs", "a shared GPU"],
)
def test_only_ranks_sharing_a_gpu_set_nccl_hostid(visible: list[str], own_host: bool, monkeypatch: pytest.MonkeyPatch):
    simulate_gpus(monkeypatch, len(visible))
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=visible[number]))
    for name in ("NCCL_HOSTID", "NCCL_NET", "NCCL_NVLS_ENABLE"):
        monkeypatch.setenv(name, "")  # restored afterwards
        del os.environ[name]
    monkeypatch.setenv("NCCL_MAX_CTAS", "4")
    store = dist.HashStore()  # type: ignore[attr-defined]
    for rank, uuid in enumerate("ab"):
        store.set(f"GPU of rank {rank}", uuid)
    group.select_gpu(store, 2, 3, local_rank=2)
    assert os.environ.get("NCCL_HOSTID", "").endswith("rank2") == own_host
    assert (os.environ.get("NCCL_NET"), os.environ["NCCL_MAX_CTAS"]) == ("Socket" if own_host else None, "4")


ADDRESSES = {"lo": "127.0.0.1", "eth0": "10.0.0.7", "ib0": "10.1.0.7"}  # of a host's interfaces


@pytest.mark.parametrize(
    ("routes", "chosen"),
    [
        ({"me": "127.0.0.1", "head": "10.1.0.7"}, "ib0"),
        ({"me": "127.0.0.1", "head": "127.0.0.1", group.ANYWHERE: "10.0.0.7"}, "eth0"),
        ({"me": "10.0.0.7", "head": "10.1.0.7"}, None),
        ({"me": "127.0.0.1", "head": "127.0.0.1", group.ANYWHERE: ""}, None),
    ],
    ids=["route to rank 0", "host of rank 0", "a name that others reach", "no network"],
)
def test_gloo_interface_is_chosen_to_reach_other_hosts(
    routes: dict[str, str], chosen: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    monkeypatch.setattr(group, "_own_address", routes.get)
    interfaces = {name: [SimpleNamespace(address=address)] for name, address in ADDRESSES.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    monkeypatch.setenv("MASTER_ADDR", "head")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    del os.environ["GLOO_SOCKET_IFNAME"]
    group.reach_other_hosts()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == chosen


def test_ranks_on_cpus_do_not_initialize_cuda(monkeypatch: pytest.MonkeyPatch):
    simulate_gpus(monkeypatch, 2)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: pytest.fail("CUDA was started"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)  # by something else in this process
    assert isinstance(Stopwatch(0)._clock, HostClock)
    source = find_model("llama:layers=1,width=16,heads=2,context=8,vocabulary=32")
    assert measure(source, profile_on_meta(source), 1, device="cpu").device


def test_torch_without_nccl_is_rejected(monkeypatch: pytest.MonkeyPatch):
    simulate_gpus(monkeypatch, 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "H200")
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(InputError, match="this torch was built without NCCL"):
        check_launch(1, "nccl", 60)
    _, check = doctor._look_at_torch()
    assert not check.works and check.detail == "1: H200, but torch was built without NCCL"


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([("all_reduce", 6, "completed", False), ("broadcast", 7, "started", False)], "broadcast, number 7"),
        (
            [("recv 0<-1", 1, "scheduled", True), ("coalesced", 2, "started", True), ("gather", 8, "scheduled", False)],
            "coalesced, number 2",
        ),
        ([("recv 0<-1", 1, "scheduled", True)], ""),
    ],
    ids=["collective", "messages", "nothing"],
)
def test_flight_recorder_names_the_oldest_unfinished_call(
    calls: list[tuple[str, int, str, bool]], message: str, monkeypatch: pytest.MonkeyPatch
):
    """A message group is one call; torch never updates the state of its messages."""
    entries = [
        {"profiling_name": f"nccl:{name}", "process_group": ["0", "default_pg"], "state": state, "is_p2p": is_p2p,
         "p2p_seq_id": number if is_p2p else 99, "collective_seq_id": 99 if is_p2p else number}
        for name, number, state, is_p2p in calls
    ]  # fmt: skip
    listed = json.dumps({"entries": entries}).encode()
    monkeypatch.setattr(_distributed_c10d, "_dump_nccl_trace_json", lambda **_: listed, raising=False)
    monkeypatch.setattr(hangs._Watch, "looks", (hangs.oldest_unfinished,))
    assert hangs.describe_unfinished() == (f"nccl:{message} of group 0, is started" if message else "")
    monkeypatch.delattr(_distributed_c10d, "_dump_nccl_trace_json")
    assert hangs.describe_unfinished() == ""  # of a torch without NCCL


HANG = """
import time
import torch.distributed as dist
from realcomm.launching.hangs import Pending, watch_by
from realcomm.launching.torchrun import run_under_torchrun

def hang(rank, world_size):
    watch_by(lambda: Pending("all_reduce/ring, channel 1, step 3, waiting for rank 2", age_s=60.0, timeout_s=70.0))
    time.sleep(100)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
run_under_torchrun(hang, 1, (), "gloo", None, 60.0, None)
"""


def test_hang_under_torchrun_exits_with_its_location(tmp_path: Path):
    """The main thread waits for the GPU, where it would not receive an exception."""
    (tmp_path / "hang.py").write_text(HANG)
    [(status, _, errors)] = run_ranks(1, tmp_path, tmp_path / "hang.py")
    expected = "ringlab: timed out after 60 s; rank 0: all_reduce/ring, channel 1, step 3, waiting for rank 2"
    assert status == 1 and errors.splitlines()[-1] == expected


def hang_on_a_gpu(rank: int, world_size: int) -> None:
    """Fail on rank 0 and hang on the others; the flight recorder has a call of rank 1."""
    vars(worker)["describe_unfinished"] = lambda: "nccl:broadcast is started" if rank == 1 else ""
    dist.barrier()
    if rank == 0:
        raise ValueError("as it stands")
    time.sleep(600)


def test_failed_run_has_notes_of_the_flight_recorder():
    with pytest.raises(RankFailed, match="as it stands") as caught:
        launch(hang_on_a_gpu, 3, timeout=100)
    assert caught.value.__notes__ == ["rank 1: NCCL's nccl:broadcast is started"]


def wait_on_hosts(rank: int, world_size: int) -> tuple[bool, bool, str]:
    """Return whether a rank on a GPU has one gloo group for host work, and what it exchanges there."""
    vars(group_memory)["own_device"] = lambda: torch.device("cuda")
    gloo = group_memory.host_group()
    group_memory.host_barrier()
    heard = [None] * world_size if rank == 0 else None
    dist.gather_object(rank, heard, group=gloo)
    return (gloo is group_memory.host_group(), gloo is dist.group.WORLD, f"{dist.get_backend(gloo)} {heard}")


def test_host_side_waits_use_a_gloo_group():
    assert launch(wait_on_hosts, 2) == [(True, False, "gloo [0, 1]"), (True, False, "gloo None")]
