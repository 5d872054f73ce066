"""Ranks that meet at their own stores, at an address and in a file; and RPC, which is rejected."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import rpc

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore("localhost", 29400, size, is_master=rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
dist.all_reduce(x := torch.ones(2))
dist.destroy_process_group()
dist.init_process_group("gloo")
assert isinstance(dist.distributed_c10d._get_default_store().underlying_store.underlying_store, dist.TCPStore)
dist.destroy_process_group()
dist.init_process_group("gloo", init_method="file:///tmp/nowhere/at/all", rank=rank, world_size=size)
dist.all_reduce(x)
files = dist.FileStore("/tmp/nowhere/either", size)
files.add("came", 1)
files.wait(["came"])
prefixed = dist.PrefixStore("mine", store)
assert dist.PrefixStore("inner", dist.TCPStore("localhost", 29401)).add("n", 1) > 0
prefixed.set(f"of{rank}", "here")
print(x.tolist(), prefixed.get(f"of{(rank + 1) % size}"), Path("/tmp/nowhere").exists())
try:
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
except RuntimeError as error:
    print(str(error)[:51])
