"""Messages of NCCL, torch, launchers and kernels: each is told as what it stands for, at its line."""

import re
from pathlib import Path

import pytest

import ringlab
from simcomm.diagnosis.evidence.messages import MESSAGES

N = "n0:10:20 [0]"
LINES = {  # a line as it is printed, by the message's key
    "connection": f"{N} NCCL INFO Call to connect returned Connection refused, retrying",
    "own-address": "DistNetworkError: The client socket has timed out after 60s while trying to "
    "connect to (127.0.0.1, 29500)",
    "name-unknown": "[W socket.cpp:697] [c10d] The IPv6 network addresses of (node7, 29500) cannot be retrieved (gai "
    "error: -2 - Name or service not known).",
    "loopback": "Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
    "no-interface": f"{N} bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
    "other-subnet": f"{N} include/socket.h:197 NCCL WARN Net : No interface found in the same subnet as remote address "
    "10.1.2.3<9>",
    "port-in-use": "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, "
    "useIpv6: true, code: -98, name: EADDRINUSE, message: address already in use",
    "foreign-address": "OSError: [Errno 99] Cannot assign requested address",
    "ib-completion": f"{N} transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with "
    "error 12, opcode 0, len 0, vendor err 129",
    "ib-receiver": f"{N} transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with "
    "status=13 opcode=0 len=0 vendor err 135",
    "ib-queue-pair": f"{N} misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument",
    "ib-port-error": f"{N} transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error",
    "ib-local-access": f"{N} net_ib.cc:93 NCCL WARN NET/IB : Got async event : local access violation",
    "ib-protection": f"{N} transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion with error 4, opcode 0, len 0",
    "ib-memory": f"{N} misc/ibvwrap.cc:150 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "efa-receiver": f"{N} nccl_net_ofi_rdma.c:600 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 22. Error: "
    "Unresponsive receiver (reachable by EFA device but handshake failed)",
    "shm-permission": f"{N} misc/shmutils.cc:50 NCCL WARN Call to shm_open failed : Permission denied",
    "shm-failed": "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
    "memory (shm).",
    "bus-error": "[8d6bf97c3bf4:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)",
    "shm-other": f"{N} misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-? "
    "(size 0), error: No such file or directory (2)",
    "shm-apart": f"{N} misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Ab "
    "(size 9637888), error: No such file or directory (2)",
    "open-files": "OSError: [Errno 24] Too many open files",
    "processes": "RuntimeError: can't start new thread",
    "host-memory": "RuntimeError: DataLoader worker (pid 4312) is killed by signal: Killed.",
    "disk-full": "OSError: [Errno 28] No space left on device: '/scratch/checkpoint.pt'",
    "time-limit": "slurmstepd: error: *** JOB 12 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "node-failure": "slurmstepd: error: *** JOB 12 ON n0 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***",
    "sysfs": f"{N} graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00",
    "extension-lock": "Waiting for file lock at /home/me/.cache/torch_extensions/py311_cu124/fused_adam/lock",
    "xid": "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    "pcie-errors": "kernel: pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
    "fabric": "RuntimeError: Unexpected error from cudaGetDeviceCount(): Error 802: system not yet initialized",
    "duplicate-gpu": f"{N} init.cc:521 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5000",
    "no-such-gpu": "RuntimeError: CUDA error: invalid device ordinal",
    "no-gpu": "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    "busy-gpu": "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    "topology-file": f"{N} graph/xml.h:85 NCCL WARN Attribute busid of node nic not found",
    "cuda-driver": "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    "out-of-memory": "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "device-assert": "RuntimeError: CUDA error: device-side assert triggered",
    "mismatch": f"{N} NCCL WARN Mismatched collective detected, please check your collective calls",
    "gloo-timeout": "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
    "1800000ms for recv operation to complete",
    "version-differs": "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
    "unused-parameters": "RuntimeError: Expected to have finished reduction in the prior iteration.",
    "ready-twice": "RuntimeError: Expected to mark a variable ready only once.",
    "model-differs": "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 10 params, while rank 1 "
    "has inconsistent 12 params.",
    "cpu-tensor": "RuntimeError: No backend type associated with device type cpu",
    "no-backend": "RuntimeError: Distributed package doesn't have NCCL built in",
    "forked-cuda": "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
    "ranks-missing": "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients "
    "joined.",
    "store-gone": 'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
    "peer-gone": f"{N} misc/socket.cc:47 NCCL WARN socketProgress: Connection closed by remote peer n1<44321>",
    "stalled-ranks": "Stalled ops: [missing ranks: 1, 3]",
    "address-family": "RuntimeError: Gloo connectFullMesh failed with: [ifa != nullptr] Address family mismatch",
    "foreign-connection": f"{N} misc/socket.cc:650 NCCL WARN socketFinalizeAccept: wrong magic 4745 != 0",
    "net-absent": f"{N} net.cc:500 NCCL WARN Error: network FasTrak not found.",
    "ssh": "Host key verification failed.",
    "killed": "run.sh: line 12:  4312 Killed                  python train.py",
    "segfault": "Fatal Python error: Segmentation fault",
    "driver-gone": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    "driver-other": "Failed to initialize NVML: Driver/library version mismatch",
    "peer-access": f"{N} transport/p2p.cc:136 NCCL WARN Cuda failure 217 'peer access is not supported between these "
    "two devices'",
    "peers-exhausted": f"{N} transport/p2p.cc:526 NCCL WARN Cuda failure 'peer mapping resources exhausted'",
    "graph-file": f"{N} graph/search.cc:719 NCCL WARN XML Import Channel : dev 1 not found.",
    "memory-fault": "Memory access fault by GPU node-1 (Agent handle: 0x7f) on address 0x7f. Reason: Unknown.",
    "cublas-memory": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "sizes-of-messages": f"{N} transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> "
    "collective mismatch error, local size 496640 remote size 65536",
    "rank-count": f"{N} bootstrap.cc:176 NCCL WARN Bootstrap Root : mismatch in rank count from procs 2 : 4",
    "not-launched": "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
    "RANK expected, but not set",
    "first-unique-id": "DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: Broken pipe",
    "algorithm-absent": f"{N} enqueue.cc:1500 NCCL WARN Error : no algorithm/protocol available for function Broadcast",
    "few-slots": "There are not enough slots available in the system to satisfy the 16 slots",
}


def test_every_message_has_an_example() -> None:
    assert LINES.keys() == MESSAGES.keys()


@pytest.mark.parametrize("key", LINES)
def test_a_message_is_told_as_what_it_stands_for_at_its_line(tmp_path: Path, key: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"step 1 loss 2.5\n[rank3]: {LINES[key]}\nstep 2 loss 2.4\n")
    answer = ringlab.diagnose([path])
    assert answer.verdict == "hang"
    first = answer.causes[0]
    assert (first.name, first.line) == (MESSAGES[key].cause, 2)
    assert first.remedy


def test_an_exception_that_is_not_known_is_said_with_the_programs_own_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/me/train.py", line 31, in <module>\n'
        "[rank1]:     main()\n"
        '[rank1]:   File "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl\n'
        "[rank1]:     return forward_call(*args)\n"
        "[rank1]: KeyError: 'labels'\n"
    )
    answer = ringlab.diagnose([path])
    assert answer.verdict == "unknown"
    assert not answer.causes
    assert "KeyError: 'labels'" in answer.reason
    assert "/home/me/train.py:31" in answer.reason


DEVINFO = "hca_id:\tmlx5_0\n\t\t\tactive_mtu:\t\t{mtu} (3)\n\t\t\tGID[  1]:\t\tfe80::ac0:ebff:feda:1cfb, RoCE v2\n"


def test_an_address_that_is_not_routed_and_unequal_mtus_are_told_from_ibv_devinfo(tmp_path: Path) -> None:
    log, one, other = (tmp_path / name for name in ("log.txt", "n0.txt", "n1.txt"))
    log.write_text(f"{N} NCCL INFO NCCL_IB_GID_INDEX set by environment to 1.\n")
    one.write_text(DEVINFO.format(mtu=4096))
    other.write_text(DEVINFO.format(mtu=1024))
    first = ringlab.diagnose([log, one]).causes[0]
    assert (first.name, Path(first.file).name, first.line) == ("gid-index", "n0.txt", 3)
    log.write_text(f"{N} NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.\n")
    first = ringlab.diagnose([log, one, other]).causes[0]
    assert (first.name, Path(first.file).name, first.line) == ("mtu-differs", "n1.txt", 2)


@pytest.mark.parametrize(("down", "told"), [({(1, 3)}, ["nvlink-down"]), ({(0, 3), (1, 3)}, []), (set(), [])])
def test_a_gpu_with_fewer_nvlinks_than_the_others_is_told(
    tmp_path: Path, down: set[tuple[int, int]], told: list[str]
) -> None:
    path = tmp_path / "nvlink.txt"
    path.write_text(
        "".join(
            f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-{gpu})\n"
            + "".join(f"\t Link {link}: {'<inactive>' if (gpu, link) in down else '25 GB/s'}\n" for link in range(4))
            for gpu in range(2)
        )
    )
    assert [cause.name for cause in ringlab.diagnose([path]).causes] == told


def test_a_network_plugin_that_only_some_hosts_have_is_told_at_the_host_without(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    there = "n0:1:2 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v8)"
    absent = "n1:1:2 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."
    path.write_text(f"{there}\n{absent}\n")
    first = ringlab.diagnose([path]).causes[0]
    assert (first.name, first.line) == ("plugin-differs", 2)
    assert first.text.startswith("n1 has no")
    path.write_text(f"{absent}\n{absent.replace('n1', 'n2')}\n")
    assert not ringlab.diagnose([path]).causes


@pytest.mark.parametrize(("share", "verdict"), [(0.62, "slow"), (0.12, "unknown")])
def test_the_table_of_torchs_profiler_tells_how_much_nccl_takes(tmp_path: Path, share: float, verdict: str) -> None:
    path = tmp_path / "table.txt"
    path.write_text(
        "       Name    Self CPU %      Self CPU     Self CUDA   Self CUDA %    # of Calls\n"
        f"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDev...    0.00%    0.000us    4.2s    {share:.2%}    810\n"
        f"       ampere_sgemm_128x64_nn    0.00%    0.000us    2.6s    {1 - share:.2%}    120\n"
    )
    answer = ringlab.diagnose([path])
    assert answer.verdict == verdict
    assert [cause.name for cause in answer.causes] == ["slow-collectives"] * (verdict == "slow")


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: n3: task 5: Killed",
        "[ERROR] ['python3', 'train.py', '--local_rank=5', '--epochs', '1'] exits with return code = -9",
        "mpirun noticed that process rank 5 with PID 4312 on node n3 exited on signal 9 (Killed).",
    ],
)
def test_the_rank_that_a_launcher_saw_end_is_told(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{line}\n")
    first = ringlab.diagnose([path]).causes[0]
    assert first.name == "host-memory"
    assert re.match(r"rank 5( on n3)? was killed \(SIGKILL\)", first.text)


@pytest.mark.parametrize(
    "line",
    [
        "wandb: view the run, connect to localhost:8080",
        "oom_kill 0",
        "oom_kill_disable 0",
        "bound on 127.0.0.1 (connected)",
    ],
)
def test_what_is_ordinary_is_no_message(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{line}\n{N} NCCL INFO Init COMPLETE\n")
    assert not ringlab.diagnose([path]).causes
