# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === mpi, 2 ranks: exception: RuntimeError: Distributed package doesn't have MPI built in
dist.init_process_group("mpi")  # reported

# === rpc, 2 ranks: exception: torch.distributed.rpc cannot run on virtual ranks
from torch.distributed import rpc
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)  # reported

# === elastic_launch_of_a_command, 0 ranks: exception: pass a function to elastic_launch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
elastic_launch(LaunchConfig(1, 1, 2), "python")()  # reported

# === elastic_launch_on_two_nodes, 0 ranks: exception: pass min_nodes=1
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
elastic_launch(LaunchConfig(2, 2, 2), print)()  # reported

# === torchrun_in_a_subprocess, 1 ranks: exception: run the script that it launches with ringlab virtual
import subprocess
subprocess.run(["torchrun", "x.py"])  # reported

# === launcher_in_a_shell, 1 ranks: exception: run the script that it launches with ringlab virtual
import subprocess
subprocess.run("python -m torch.distributed.run x.py", shell=True)  # reported

# === pool_by_fork, 0 ranks: exception: start ranks with torch.multiprocessing.spawn
import multiprocessing
def work(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29755", rank=rank, world_size=1)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(work, [0])  # reported

# === starter_that_joins, 0 ranks: exception: start all ranks with multiprocessing
import multiprocessing
def work(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29777", rank=rank, world_size=2)
    dist.barrier()  # reported
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work, args=(1,))
    process.start()
    work(0)

# === one_of_several_processes, 0 ranks: exception: pass --ranks 2 if each rank runs this program
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29513", rank=0, world_size=2)
dist.all_reduce(torch.ones(2))  # reported

# === raises_before_ranks_start, 0 ranks: exception: the program that starts ranks raised ValueError
raise ValueError("too early")  # reported

# === sockets, 2 ranks: exception: sockets between ranks cannot run on virtual ranks
import socket
with socket.create_server(("", 0)) as server:
    server.accept()  # reported

# === own_kernel, 2 ranks, --gpu: exception: custom CUDA or Triton kernels and symmetric memory cannot run
raise AssertionError("libcuda.so cannot found!")  # reported

# === driver_call, 2 ranks, --gpu: exception: driver calls cannot run on virtual ranks, whose GPUs have no driver
raise RuntimeError("Found no NVIDIA driver on your system.")  # reported

# === cuda_without_gpus, 2 ranks: exception: run the program with --gpu
torch.ones(1).cuda()  # reported

# === missing_package, 2 ranks: exception: install nothing_like_this in the environment
import nothing_like_this  # reported

# === not_implemented, 2 ranks: exception: fix: implement this line
raise NotImplementedError  # reported

# === value_without_data, 1 ranks, --fake: exception: run without --fake
x = torch.randn(4)
if (x > 0).any():  # reported
    print(x)
