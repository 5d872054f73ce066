"""Messages of NCCL, torch, launchers and the kernel that say why a run does not start or breaks, and what each means.

The wordings are those of NVIDIA/nccl (src/misc, src/transport, src/graph), pytorch/pytorch (c10d, elastic, DataLoader),
gloo, aws-ofi-nccl, Slurm, Open MPI, Horovod and the Linux kernel.
"""

from typing import NamedTuple


class KnownMessage(NamedTuple):
    """A message: how it is worded, the cause that it stands for, what to do, and how surely it is that."""

    pattern: str  # in small letters, as a line is before it is looked at
    cause: str
    text: str
    remedy: str
    strength: float


NETWORK_MESSAGES = {
    "connection": KnownMessage(
        r"(?:connect|call to connect)\S* .*(?:connection refused|timed? ?out|no route to host|unreachable)|"
        r"client socket has (?:timed out|failed to connect)|connectfullmesh failed",
        "no-connection",
        "ranks cannot reach each other over TCP",
        "NCCL_SOCKET_IFNAME (GLOO_SOCKET_IFNAME) with the interface that joins the hosts; open the firewall between "
        "them",
        0.7,
    ),
    "own-address": KnownMessage(
        r"(?:timed out|failed|refused|cannot) .*"
        r"(?:connect(?:ing)? to|network address of) \(?\[?(?:127\.\d+\.\d+\.\d+|localhost|::1)\b",
        "host-name",
        "a rank was told to meet the first one at an address that every host takes for its own",
        "--master_addr or --rdzv_endpoint with an address that the other hosts reach, and the first host's name in "
        "/etc/hosts or DNS as that address, not as 127.0.1.1",
        0.75,
    ),
    "name-unknown": KnownMessage(
        r"gai error: -[235]\b|temporary failure in name resolution|name or service not known|nodename nor servname",
        "host-name",
        "a host's name leads to no address",
        "the name in /etc/hosts or DNS of all hosts, or an address in MASTER_ADDR or --rdzv_endpoint",
        0.8,
    ),
    "loopback": KnownMessage(
        r"using the loopback address as fallback",
        "wrong-interface",
        "gloo does not find its host's own address and meets over the loopback, which leads to no other host",
        "GLOO_SOCKET_IFNAME with the interface that joins the hosts, or the host's name in /etc/hosts",
        0.88,
    ),
    "no-interface": KnownMessage(
        r"bootstrap : no socket interface found|no usable (?:listening )?interface|socket creation failed|"
        r"unable to find (?:address for|interface)",
        "wrong-interface",
        "no network interface is found to meet over",
        "NCCL_SOCKET_IFNAME (GLOO_SOCKET_IFNAME) with an interface that is up; --network host for a container",
        0.85,
    ),
    "other-subnet": KnownMessage(
        r"no interface found in the same subnet as remote address",
        "comm-id",
        "the address to meet at (NCCL_COMM_ID) is in no subnet of this host",
        "NCCL_COMM_ID with an address of the first rank in a subnet that both hosts have, or leave it away",
        0.9,
    ),
    "port-in-use": KnownMessage(
        r"address already in use|eaddrinuse|server socket has failed to (?:bind|listen)",
        "port-in-use",
        "the port to meet at is taken, by another job or by what an earlier one has left",
        "another --master_port (29501), or --rdzv_endpoint=localhost:0 for a free one; end what is left (ss -ltnp)",
        0.9,
    ),
    "foreign-address": KnownMessage(
        r"cannot assign requested address|eaddrnotavail",
        "host-name",
        "rank 0 is to listen at an address that is not its host's",
        "MASTER_ADDR or --rdzv_endpoint with an address of the host where rank 0 (--node_rank 0) runs",
        0.8,
    ),
    "ib-completion": KnownMessage(
        r"got completion (?:from peer \S+ )?with (?:error|status=?) ?(?:12|ibv_wc_retry_exc_err)",
        "ib-path-broken",
        "an InfiniBand or RoCE message was sent again and again and never acknowledged",
        "look at MTU (equal on hosts and switches), GID index, cable and routing: ib_write_bw between the same NICs",
        0.85,
    ),
    "ib-receiver": KnownMessage(
        r"got completion (?:from peer \S+ )?with (?:error|status=?) ?(?:13|ibv_wc_rnr_retry_exc_err)",
        "rank-ended",
        "the receiver of an InfiniBand or RoCE message was never ready: its process has ended or stands still",
        "look at the log of the rank at the other end first",
        0.6,
    ),
    "ib-queue-pair": KnownMessage(
        r"ibv_modify_qp failed",
        "ib-path-broken",
        "NICs of two hosts cannot be joined",
        "pair NICs of one subnet: NCCL_IB_HCA, NCCL_IB_GID_INDEX=3 for RoCE v2",
        0.8,
    ),
    "ib-port-error": KnownMessage(
        r"got async event ?: port error|mlx5_core \S+ \w+: link down|port module event.*(?:unplugged|error)",
        "port-down",
        "a NIC's port went down while it ran",
        "look at cable, transceiver and switch port: ibstat, mlxlink, link_downed of the port; ten times is flapping",
        0.88,
    ),
    "ib-local-access": KnownMessage(
        r"got async event ?: local access violation",
        "mtu-differs",
        "a NIC was sent more than it takes at once: MTUs of the two ends probably differ",
        "ibv_devinfo: active_mtu equal on all hosts and switches",
        0.7,
    ),
    "ib-protection": KnownMessage(
        r"got completion (?:from peer \S+ )?with (?:error|status=?) ?(?:4|10|11)\b",
        "gpudirect-broken",
        "a NIC may not read or write memory that it was given",
        "switch off ACS and the IOMMU, or GPUDirect (NCCL_NET_GDR_LEVEL=LOC) to see whether it is that",
        0.75,
    ),
    "ib-memory": KnownMessage(
        r"ibv_reg_mr\w* failed|ibv_create_(?:cq|qp)\w* failed.*cannot allocate memory|"
        r"max locked memory\s.*\s(?:\d{1,7})\s*$",
        "memlock",
        "memory cannot be registered with the NIC",
        "ulimit -l unlimited; --ulimit memlock=-1",
        0.85,
    ),
    "efa-receiver": KnownMessage(
        r"unresponsive receiver|net/ofi request \S+ completed with error.*(?:reachable|unreachable)",
        "efa-unreachable",
        "the EFA of another host does not answer: its process has ended, or a security group keeps them apart",
        "let the security group allow all traffic to and from itself; look at the other rank's log",
        0.8,
    ),
    "address-family": KnownMessage(
        r"address family mismatch|unsupported address family",
        "wrong-interface",
        "one host meets over IPv4 and another over IPv6",
        "NCCL_SOCKET_FAMILY=AF_INET, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME alike on all hosts",
        0.85,
    ),
    "foreign-connection": KnownMessage(
        r"wrong magic|magic mismatch",
        "port-in-use",
        "something else than a rank of this job connected to its port: another job, or a scanner",
        "a port of its own for each job; NCCL_SOCKET_IFNAME with an interface that only the cluster reaches",
        0.75,
    ),
    "net-absent": KnownMessage(
        r"error: network \S+ not found|failed to initialize any net plugin",
        "plugin-differs",
        "the network that NCCL_NET names is not there",
        "NCCL_NET=IB or Socket, or install the plugin and its LD_LIBRARY_PATH on all hosts",
        0.85,
    ),
    "ssh": KnownMessage(
        r"host key verification failed|permission denied \(publickey",
        "no-login",
        "the launcher cannot log in to a host",
        "ssh to it without a password from the first host, by the user that starts the job",
        0.9,
    ),
}

HOST_MESSAGES = {
    "shm-permission": KnownMessage(
        r"shm_open failed ?: (?:permission denied|operation not permitted)",
        "shm-permission",
        "shared memory may not be written: /dev/shm refuses this user",
        "chmod 1777 /dev/shm, or mount it for the container's user",
        0.95,
    ),
    "shm-failed": KnownMessage(
        r"(?:error while creating shared memory|unable to allocate shared memory|posix_fallocate failed|"
        r"shm.*no space left on device|no space left on device.*shm|torch_\d+_\d+.*no space left|"
        r"insufficient shared memory|killed by signal: bus error|^shm\s+(?:64m|65536)\s)",
        "shm-too-small",
        "shared memory cannot be had",
        "--shm-size=8g or --ipc=host for the container",
        0.9,
    ),
    "bus-error": KnownMessage(
        r"caught signal 7\b|bus error|\bsigbus\b",
        "shm-too-small",
        "a process was ended by SIGBUS, as where /dev/shm is full",
        "df -h /dev/shm; --shm-size=8g or --ipc=host for the container",
        0.75,
    ),
    "shm-other": KnownMessage(
        r"error while attaching to shared memory segment \S+ \(size 0\)",
        "host-numa",
        "ranks chose different kinds of host memory: this one got no segment to attach to",
        "NCCL_CUMEM_HOST_ENABLE=0, as where CUDA has host memory on the NUMA nodes of some GPUs only",
        0.8,
    ),
    "shm-apart": KnownMessage(
        r"error while attaching to shared memory segment \S+ \(size [1-9]",
        "separated-containers",
        "ranks of one host do not see the same /dev/shm",
        "one /dev/shm and IPC namespace for the containers of a host (--ipc=host), or NCCL_HOSTID of its own for each",
        0.8,
    ),
    "open-files": KnownMessage(
        r"too many open files|received 0 items of ancdata|open files\s+\(-n\) (?:256|1024)\s*$",
        "open-files",
        "the limit of open files is used up",
        "ulimit -n 65536 (LimitNOFILE, --ulimit nofile); of a loader: "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        0.92,
    ),
    "processes": KnownMessage(
        r"pthread_create failed|can't start new thread|fork: (?:retry: )?resource temporarily unavailable",
        "process-limit",
        "no more threads or processes may be started",
        "ulimit -u and the container's limit (--pids-limit); fewer workers of loaders and OMP_NUM_THREADS=1",
        0.9,
    ),
    "host-memory": KnownMessage(
        r"killed by signal: killed|\boom[-_]kill(?:er|ed)?\b(?!\s+0\b)|out of memory: killed process|oomkilled|"
        r"out of memory$|was killed due to the node running low on memory|"
        r"^(?!.*ibv_).*cannot allocate memory|^memoryerror",
        "host-memory",
        "the host's memory is used up, and its kernel, container or scheduler ended a process",
        "fewer workers of the loader and smaller prefetch, a higher limit (--mem, --memory), or more memory",
        0.85,
    ),
    "disk-full": KnownMessage(
        r"\[errno 28\] no space left on device(?!.*shm)|disk quota exceeded",
        "disk-full",
        "a file system is full",
        "df -h where checkpoints, caches and TMPDIR lie",
        0.8,
    ),
    "time-limit": KnownMessage(
        r"due to time limit",
        "time-limit",
        "the scheduler ended the job at its time limit",
        "a longer --time, and checkpoints",
        0.95,
    ),
    "node-failure": KnownMessage(
        r"due to node failure|has lost communication with a remote daemon",
        "node-failed",
        "a node has failed",
        "leave it out (--exclude) until it is mended",
        0.9,
    ),
    "sysfs": KnownMessage(
        r"could not find real path of /sys/|failed to open /sys/class/pci",
        "sysfs-hidden",
        "/sys does not show the GPUs' PCI devices, without which NCCL does not find its way: WSL2, or a container",
        "a newer NCCL (2.10.3 and later run on WSL2); mount /sys into the container",
        0.9,
    ),
    "extension-lock": KnownMessage(
        r"torch_extensions[/\\]\S*[/\\]lock\b",
        "stale-lock",
        "an extension waits for a lock that an ended process has left",
        "remove ~/.cache/torch_extensions, or its file named lock",
        0.7,
    ),
    "killed": KnownMessage(
        r"^killed$|: line \d+:\s+\d+ killed|defaultcpuallocator: (?:not enough|can't allocate) memory",
        "host-memory",
        "a process was killed (SIGKILL), as the kernel does where the host's memory is used up",
        "dmesg -T | grep -i oom; fewer workers of the loader, less offloading, more memory or a higher limit",
        0.7,
    ),
    "segfault": KnownMessage(
        r"segmentation fault",
        "rank-ended",
        "a process was ended by SIGSEGV",
        "python -X faulthandler says where; look at versions of torch, NCCL, plugins and driver",
        0.5,
    ),
}

GPU_MESSAGES = {
    "xid": KnownMessage(
        r"nvrm: xid|uncorrectable (?:nvlink|ecc) error|cuda failure .* (?:unhandled|misaligned|illegal)",
        "gpu-fault",
        "a GPU or its driver failed",
        "look at dmesg for Xid; reset or replace it",
        0.8,
    ),
    "pcie-errors": KnownMessage(
        r"fallen off the bus|unable to determine the device handle|pcie bus error: severity=",
        "gpu-fault",
        "a GPU or a device on its way has errors on PCIe, or has left the bus",
        "look at dmesg for AER and Xid; seat, reset or replace it, and leave its host out until then",
        0.85,
    ),
    "fabric": KnownMessage(
        r"transport/nvls\.cc:\d+ nccl warn cuda failure|system not yet initialized|error in the fabric manager|"
        r"failed to bind nvlink sharp|cuda error 802\b|sxid",
        "fabric-manager",
        "the NVSwitches are not set up: the fabric manager does not run, or was started again under running GPUs",
        "systemctl status nvidia-fabricmanager; start it, reset the GPUs or reboot; NCCL_NVLS_ENABLE=0 goes without "
        "multicast",
        0.85,
    ),
    "duplicate-gpu": KnownMessage(
        r"duplicate gpu detected",
        "duplicate-gpu",
        "two ranks use the same GPU",
        "torch.cuda.set_device(LOCAL_RANK) before init_process_group; as many ranks a host as it has GPUs, and no "
        "CUDA_VISIBLE_DEVICES or device in the program that gives all ranks one",
        0.95,
    ),
    "no-such-gpu": KnownMessage(
        r"invalid device ordinal",
        "too-few-gpus",
        "a rank asks for a GPU that its process does not see: more ranks than GPUs, or a scheduler that shows each one",
        "as many ranks a host (--nproc_per_node) as CUDA_VISIBLE_DEVICES or nvidia-smi -L lists; under Slurm no "
        "--gpus-per-task with LOCAL_RANK as the device",
        0.9,
    ),
    "no-gpu": KnownMessage(
        r"no gpus found|no cuda gpus are available|no cuda-capable device is detected|found no nvidia driver",
        "no-gpu",
        "a process sees no GPU",
        "nvidia-smi in the same container or job: --gpus all, --gres=gpu, CUDA_VISIBLE_DEVICES",
        0.9,
    ),
    "busy-gpu": KnownMessage(
        r"cuda-capable device(?:s are|\(s\) is/are) busy or unavailable",
        "gpu-busy",
        "a GPU lets only one process in, and another one is",
        "end that process (nvidia-smi), or nvidia-smi -c DEFAULT",
        0.85,
    ),
    "topology-file": KnownMessage(
        r"nccl warn attribute \w+ of node \w+ not found",
        "topology-file",
        "the topology that NCCL was given lacks what it needs",
        "leave NCCL_TOPO_FILE away, or take the file of the plugin's version; virtual machines need one that fits them",
        0.85,
    ),
    "cuda-driver": KnownMessage(
        r"cuda driver version is insufficient|no kernel image is available|driver .* is too old|"
        r"cuda driver is a stub library",
        "cuda-version",
        "the GPU driver, and the CUDA that NCCL or torch was built for, do not fit",
        "a newer driver, or builds of torch and NCCL for the CUDA that nvidia-smi shows",
        0.9,
    ),
    "out-of-memory": KnownMessage(
        r"(?:cuda|hip) out of memory|failed to cuda malloc|cuda failure (?:2 )?'out of memory'|"
        r"cuda error: out of memory",
        "out-of-memory",
        "the memory of a GPU does not suffice",
        "smaller batches, activation checkpointing, sharding (FSDP); see what else is on that GPU (nvidia-smi), and "
        "leave some hundred MB to NCCL's buffers",
        0.9,
    ),
    "device-assert": KnownMessage(
        r"device-side assert triggered",
        "device-assert",
        "a kernel found an index out of range, as a class or token beyond the model's",
        "CUDA_LAUNCH_BLOCKING=1 names the line; look at labels, vocabulary and positions",
        0.85,
    ),
    "driver-gone": KnownMessage(
        r"couldn't communicate with the nvidia driver|failed to find cuda library|libcuda\.so\S*: cannot open",
        "no-gpu",
        "the GPU driver is not there, or not in this container",
        "nvidia-smi on the host; the NVIDIA container toolkit and --gpus all for a container",
        0.9,
    ),
    "driver-other": KnownMessage(
        r"driver/library version mismatch|compiled with an unsupported toolchain|forward compatibility was attempted|"
        r"hiperrornobinaryforgpu|invalid device function",
        "cuda-version",
        "the GPU driver, its library and what programs were built for do not fit each other",
        "reboot after an update of the driver; builds for the CUDA or ROCm that nvidia-smi or rocm-smi shows",
        0.9,
    ),
    "peer-access": KnownMessage(
        r"cuda failure.*peer access is not supported",
        "p2p-refused",
        "GPUs cannot reach each other's memory, although NCCL takes it that they do",
        "NCCL_P2P_DISABLE=1, or NCCL_P2P_LEVEL=NVL; see nvidia-smi topo -p2p r, the IOMMU and virtual machines",
        0.8,
    ),
    "peers-exhausted": KnownMessage(
        r"peer mapping resources exhausted",
        "too-many-peers",
        "CUDA connects a GPU over PCIe to eight others at most",
        "NCCL_P2P_LEVEL=PXB, so that only near GPUs are peers, or fewer GPUs a job",
        0.9,
    ),
    "graph-file": KnownMessage(
        r"xml import channel : dev \d+ not found",
        "graph-file",
        "NCCL_GRAPH_FILE is of a machine with other GPUs",
        "leave NCCL_GRAPH_FILE away, or take a graph that was dumped on this machine",
        0.92,
    ),
    "memory-fault": KnownMessage(
        r"memory access fault by gpu node|an illegal memory access was encountered",
        "bad-access",
        "a kernel read or wrote outside of its memory",
        "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names the kernel; then its inputs, and versions of torch and NCCL",
        0.7,
    ),
    "cublas-memory": KnownMessage(
        r"cublas_status_alloc_failed",
        "out-of-memory",
        "cuBLAS gets no memory: PyTorch's cache has what is left of it",
        "smaller batches; PYTORCH_ALLOC_CONF=expandable_segments:True, or a lower fraction for the cache",
        0.7,
    ),
}

PROGRAM_MESSAGES = {
    "mismatch": KnownMessage(
        r"mismatched collective detected",
        "collective-mismatch",
        "NCCL finds ranks in different collectives",
        "set TORCH_DISTRIBUTED_DEBUG=DETAIL, which names them",
        0.9,
    ),
    "gloo-timeout": KnownMessage(
        r"gloo/transport\S* timed out waiting \d+ms for \w+ operation",
        "rank-absent",
        "a rank has waited over gloo for another that never came: it has ended, is elsewhere, or had fewer batches",
        "look at the other ranks' logs and stacks (py-spy dump), and at whether all have equally many batches",
        0.6,
    ),
    "version-differs": KnownMessage(
        r"wrong type \d+ != \d+|message truncated|different nccl versions|undefined symbol: nccl",
        "versions-differ",
        "ranks, or torch and what it loads, have different versions of NCCL",
        "one version on all hosts, and none beside it in LD_LIBRARY_PATH",
        0.8,
    ),
    "unused-parameters": KnownMessage(
        r"expected to have finished reduction in the prior iteration|parameters that were not used in producing loss",
        "unused-parameters",
        "parameters get no gradient, so their bucket never becomes ready",
        "find_unused_parameters=True, or use all of them",
        0.9,
    ),
    "ready-twice": KnownMessage(
        r"expected to mark a variable ready only once",
        "parameter-used-twice",
        "a parameter's gradient came twice in one backward: a block that is recomputed or called twice under DDP",
        "checkpoint(..., use_reentrant=False), find_unused_parameters=False, or static_graph=True",
        0.9,
    ),
    "model-differs": KnownMessage(
        r"ddp expects same model across all ranks|appears not to match (?:sizes|strides) of the same param",
        "model-differs",
        "ranks wrap models of different parameters",
        "build one model on all ranks: look at what depends on the rank, its data or a seed",
        0.95,
    ),
    "cpu-tensor": KnownMessage(
        r"no backend type associated with device type cpu|tensors must be cuda and dense",
        "wrong-device",
        "a tensor of the CPU is given to a collective of NCCL, which knows GPUs only",
        "move it to the GPU, or init_process_group('cpu:gloo,cuda:nccl')",
        0.95,
    ),
    "no-backend": KnownMessage(
        r"doesn't have (?:nccl|mpi) built in|libnccl\S*: cannot open shared object",
        "no-backend",
        "this build of torch lacks the backend, or its library is not found",
        "a build of torch for CUDA, or gloo",
        0.95,
    ),
    "forked-cuda": KnownMessage(
        r"cannot re-initialize cuda in forked subprocess",
        "forked-cuda",
        "a process that has used CUDA was forked",
        "the start method spawn or forkserver; no CUDA before workers start",
        0.95,
    ),
    "ranks-missing": KnownMessage(
        r"\b\d+/\d+ clients joined|num_workers_joined=\d+|store based barrier|rendezvoustimeouterror",
        "rank-absent",
        "not all ranks came to the start",
        "look at the logs of the hosts that are missing; --nnodes and world size as many as are started, one address "
        "and port on all",
        0.8,
    ),
    "store-gone": KnownMessage(
        r"tcpstore server has shut down|did the remote server shutdown or crash|recvvalue failed|sendbytes failed",
        "rank-ended",
        "rank 0, which keeps the store, has ended before this rank",
        "look at rank 0's log first: what it raised is the cause",
        0.5,
    ),
    "peer-gone": KnownMessage(
        r"connection closed by (?:remote )?peer|remote process exit(?:ed|ing) prematurely|"
        r"socketprogress\S* .*(?:closed|reset)|connection reset by peer",
        "rank-ended",
        "the process at the other end has ended",
        "look at the other ranks' logs for the first exception or signal: this one is its echo",
        0.4,
    ),
    "stalled-ranks": KnownMessage(
        r"missing ranks: *\[?\d|^missing ranks:",
        "rank-behind",
        "ranks did not submit a tensor that others wait with",
        "look at those ranks' logs and stacks (py-spy dump): fewer batches, another branch, an exception caught",
        0.85,
    ),
    "sizes-of-messages": KnownMessage(
        r"collective mismatch error, local size",
        "settings-differ",
        "ranks have a message of unlike size: NCCL's variables differ between hosts, or they call unlike collectives",
        "the same NCCL_* variables and version on all hosts; TORCH_DISTRIBUTED_DEBUG=DETAIL compares the collectives",
        0.75,
    ),
    "rank-count": KnownMessage(
        r"mismatch in rank count from procs|has already checked in",
        "ranks-differ",
        "ranks were started with unlike world sizes, or two with one number",
        "WORLD_SIZE and RANK of each process: one launcher, one --nnodes and one --node_rank a host",
        0.92,
    ),
    "not-launched": KnownMessage(
        r"environment variable (?:rank|world_size|local_rank|master_addr|master_port) expected",
        "not-launched",
        "the program was started without a launcher",
        "torchrun --nproc_per_node=N program.py",
        0.95,
    ),
    "first-unique-id": KnownMessage(
        r"retrieving nccluniqueid from",
        "rank-absent",
        "rank 0 of a group has not come to the group's first collective",
        "look at that rank's log and stack (py-spy dump)",
        0.6,
    ),
    "algorithm-absent": KnownMessage(
        r"no algorithm/protocol available",
        "algorithm-forced",
        "NCCL_ALGO or NCCL_PROTO leaves no way for this collective",
        "leave NCCL_ALGO and NCCL_PROTO away",
        0.9,
    ),
    "few-slots": KnownMessage(
        r"not enough slots available|insufficient nvidia\.com/gpu",
        "too-few-gpus",
        "the launcher or scheduler has fewer places than were asked for",
        "as many ranks as hosts and GPUs are free (--host with slots, nodes of the cluster)",
        0.9,
    ),
}

MESSAGES = {**NETWORK_MESSAGES, **HOST_MESSAGES, **GPU_MESSAGES, **PROGRAM_MESSAGES}
