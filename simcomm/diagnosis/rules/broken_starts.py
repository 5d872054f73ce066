"""Messages that say why a run never starts or breaks."""

from collections.abc import Iterator

from simcomm.diagnosis.evidence.causes import Cause, stands_still
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import Adapter, RankEnded

KNOWN = {  # by the key of a complaint: name, what it means, what to do, and how surely
    "connection": (
        "no-connection",
        "ranks cannot reach each other over TCP",
        "NCCL_SOCKET_IFNAME with the interface that joins the hosts; open the firewall between them",
        0.7,
    ),
    "no-interface": (
        "wrong-interface",
        "NCCL finds no network interface to meet over",
        "NCCL_SOCKET_IFNAME with an interface that is up; --network host for a container",
        0.85,
    ),
    "ib-completion": (
        "ib-path-broken",
        "an InfiniBand or RoCE message was sent again and again and never acknowledged",
        "look at MTU (equal on hosts and switches), GID index, cable and routing: ib_write_bw between the same NICs",
        0.85,
    ),
    "ib-queue-pair": (
        "ib-path-broken",
        "NICs of two hosts cannot be joined",
        "pair NICs of one subnet: NCCL_IB_HCA, NCCL_IB_GID_INDEX=3 for RoCE v2",
        0.8,
    ),
    "ib-protection": (
        "gpudirect-broken",
        "a NIC may not read or write memory that it was given",
        "switch off ACS and the IOMMU, or GPUDirect (NCCL_NET_GDR_LEVEL=LOC) to see whether it is that",
        0.75,
    ),
    "ib-memory": (
        "memlock",
        "memory cannot be registered with the NIC",
        "ulimit -l unlimited; --ulimit memlock=-1",
        0.85,
    ),
    "shm-permission": (
        "shm-permission",
        "shared memory may not be written: /dev/shm refuses this user",
        "chmod 1777 /dev/shm, or mount it for the container's user",
        0.95,
    ),
    "shm-failed": (
        "shm-too-small",
        "shared memory cannot be had",
        "--shm-size=8g or --ipc=host for the container",
        0.9,
    ),
    "version-differs": ("versions-differ", "ranks run different versions of NCCL", "one version on all hosts", 0.8),
    "xid": ("gpu-fault", "a GPU or its driver failed", "look at dmesg for Xid; reset or replace it", 0.8),
    "pcie-errors": (
        "gpu-fault",
        "a GPU or a device on its way has errors on PCIe, or has left the bus",
        "look at dmesg for AER and Xid; seat, reset or replace it, and leave its host out until then",
        0.85,
    ),
    "fabric": (
        "fabric-manager",
        "the NVSwitches are not set up: the fabric manager does not run, or was started again under running GPUs",
        "systemctl status nvidia-fabricmanager; start it, reset the GPUs or reboot; NCCL_NVLS_ENABLE=0 goes without "
        "multicast",
        0.85,
    ),
    "duplicate-gpu": (
        "duplicate-gpu",
        "two ranks use the same GPU",
        "torch.cuda.set_device(LOCAL_RANK) before init_process_group; as many ranks a host as it has GPUs, and no "
        "CUDA_VISIBLE_DEVICES or device in the program that gives all ranks one",
        0.95,
    ),
    "topology-file": (
        "topology-file",
        "the topology that NCCL was given lacks what it needs",
        "leave NCCL_TOPO_FILE away, or take the file of the plugin's version; virtual machines need one that fits them",
        0.85,
    ),
    "cuda-driver": (
        "cuda-version",
        "the GPU driver, and the CUDA that NCCL or torch was built for, do not fit",
        "a newer driver, or builds of torch and NCCL for the CUDA that nvidia-smi shows",
        0.9,
    ),
    "out-of-memory": (
        "out-of-memory",
        "the memory of a GPU does not suffice",
        "smaller batches, activation checkpointing, sharding (FSDP); see what else is on that GPU (nvidia-smi), and "
        "leave some hundred MB to NCCL's buffers",
        0.9,
    ),
    "gloo-timeout": (
        "rank-absent",
        "a rank has waited over gloo for another that never came: it has ended, is elsewhere, or had fewer batches",
        "look at the other ranks' logs and stacks (py-spy dump), and at whether all have equally many batches",
        0.6,
    ),
    "unused-parameters": (
        "unused-parameters",
        "parameters get no gradient, so their bucket never becomes ready",
        "find_unused_parameters=True, or use all of them",
        0.9,
    ),
}


def find_broken_start(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield what each known message says."""
    for key, (name, text, remedy, strength) in KNOWN.items():
        complaint = case.facts.complaint(key)
        if complaint is None:
            continue
        asked = case.facts.settings().get("NCCL_SOCKET_IFNAME")
        loopback = _loopback(case)
        if key == "connection" and loopback is not None:
            yield stands_still(
                "wrong-interface",
                f"NCCL meets over {loopback.name}, which leads to no other host",
                loopback.place,
                remedy,
                0.9,
            )
        elif key == "connection" and asked is not None:
            yield stands_still(
                "wrong-interface",
                f"NCCL_SOCKET_IFNAME={asked.value} does not lead to the other host",
                asked.place,
                remedy,
                0.75,
            )
        else:
            yield stands_still(name, text, complaint.place, remedy, strength)


ENDED_BY = {  # by torchrun's exit status: what it stands for, what to do, and how surely
    -9: (
        "was killed (SIGKILL), as the kernel does where the host's memory is used up, or a scheduler at its limit",
        "dmesg -T | grep -i oom on that host; fewer workers of the loader, more memory or a higher limit",
        0.8,
    ),
    -7: ("was ended by SIGBUS, as where /dev/shm is full", "--shm-size=8g or --ipc=host for the container", 0.8),
    -11: (
        "was ended by SIGSEGV",
        "its core dump or faulthandler says where; look at versions of torch, NCCL and driver",
        0.7,
    ),
    -15: (
        "was ended by SIGTERM: something else stopped it",
        "look at the scheduler, and at the log of the node before",
        0.5,
    ),
    -6: ("aborted itself (SIGABRT), as torch's watchdog does", "look at what it printed before", 0.4),
}


def find_ended_rank(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank whose process ended first, by torchrun."""
    for one in case.facts.of(RankEnded):
        usual = f"ended with status {one.status}", "its own traceback in the log says why", 0.5
        how, remedy, strength = ENDED_BY.get(one.status, usual)
        where = f" on {one.host}" * bool(one.host)
        yield stands_still("rank-ended", f"rank {one.rank}{where} {how}; it was the first", one.place, remedy, strength)


def _loopback(case: DiagnosedCase) -> Adapter | None:
    """Return an interface that reaches no other host."""
    return next((one for one in case.facts.of(Adapter) if one.name in ("lo", "docker0", "virbr0")), None)


RULES = (find_broken_start, find_ended_rank)
