# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === locks, 0 ranks
# Processes that share locks, events and barriers of multiprocessing; one lock is held during a collective.
import time
from contextlib import suppress
from threading import BrokenBarrierError

import torch.multiprocessing as mp

SIZE = 3

def work(rank, lock, barrier, event, condition, number, two):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=SIZE)
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    if rank != 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pairs[0])
    with lock:  # held while the others come to it
        number.value += 1
        dist.get_world_size()
        if rank == 0:
            event.set()
    event.wait()
    assert event.is_set()
    barrier.wait()
    assert number.value == SIZE
    barrier.wait()
    with condition:
        if rank == 0:
            number.value = 10
            condition.notify_all()
        else:
            condition.wait_for(lambda: number.value == 10)
    x = torch.full((1,), float(rank))
    dist.all_reduce(x)
    assert x.item() == 3.0
    with two:
        dist.barrier()
    dist.barrier()
    if rank == 2:
        with suppress(ValueError):
            two.release()
            raise SystemExit("a bounded semaphore is released too often")
        time.sleep(1)
        barrier.reset()
    else:
        with suppress(BrokenBarrierError):
            barrier.wait()
            raise SystemExit("a barrier is passed that was reset")
    if barrier.wait() == SIZE - 1:
        print("all right")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Lock(), context.Barrier(SIZE), context.Event(), context.Condition(), context.Value("i", 0)
    shared += (context.BoundedSemaphore(SIZE),)
    mp.spawn(work, shared, nprocs=SIZE)

# === polled, 0 ranks
# Ranks poll a queue with a timeout until an event tells them that no more items come.
import queue

import torch.multiprocessing as mp

ITEMS = 9

def produce(items, is_over):
    for number in range(ITEMS):
        items.put(number)
    is_over.set()

def consume(rank, items, is_over):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29515", rank=rank, world_size=2)
    taken = torch.zeros(1)
    while not is_over.wait(timeout=0.01) or taken.item() < ITEMS:
        try:
            items.get(timeout=0.5)
            taken += 1
        except queue.Empty:
            break
    dist.all_reduce(taken)
    assert taken.item() == ITEMS
    print("all right")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Queue(), context.Event()
    processes = [context.Process(target=consume, args=(rank, *shared)) for rank in range(2)]
    processes.append(context.Process(target=produce, args=shared))
    for process in processes:
        process.start()
    for process in processes:
        process.join()

# === other_order, 0 ranks
# Processes that start in a different order than their ranks, after a process that is not a rank.
import torch.multiprocessing as mp

SIZE = 3

def fill(items):
    for _ in range(SIZE):
        items.put(1.0)

def work(rank, items):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=SIZE)
    assert dist.get_rank() == rank
    total = torch.tensor([items.get()])
    dist.all_reduce(total)
    x = torch.full((1,), float(rank))
    dist.broadcast(x, src=2)
    assert (total.item(), x.item()) == (SIZE, 2.0)
    if rank == 0:
        print("all right")

if __name__ == "__main__":
    context = mp.get_context("spawn")
    items = context.Queue()
    processes = [context.Process(target=fill, args=(items,))]
    processes += [context.Process(target=work, args=(rank, items)) for rank in reversed(range(SIZE))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

# === elastic_launch, 0 ranks
# torchelastic launches a function twice and returns its results by rank.
import os

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def work(more):
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item() + more, int(os.environ["LOCAL_RANK"])

if __name__ == "__main__":
    for processes in (2, 3):
        config = LaunchConfig(1, 1, processes, run_id="a", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
        results = elastic_launch(config, work)(10)
        assert results == {rank: (processes + 10.0, rank) for rank in range(processes)}, results
    print("all right")

# === random_numbers, 3 ranks
# Ranks draw three kinds of random numbers in turn, each rank from its own seed.
import random
from random import shuffle

import numpy as np

random.seed(rank), np.random.seed(rank), torch.manual_seed(rank)
alone = random.Random(rank), np.random.RandomState(rank), torch.Generator().manual_seed(rank)
for _ in range(3):
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    assert drawn == (alone[0].random(), alone[1].rand(), torch.rand(1, generator=alone[2]).item())
    dist.barrier()
state, cards, again = random.getstate(), list(range(9)), list(range(9))
shuffle(cards)
dist.barrier()
random.setstate(state)
shuffle(again)
assert cards == again

# === init_again, 3 ranks
# Create a second world group, which uses a new store.
for turn in range(3):
    dist.init_process_group("gloo")
    x = torch.ones(2) + turn
    dist.all_reduce(x)
    assert x.tolist() == [3.0 * (turn + 1)] * 2
    dist.destroy_process_group()

# === stores, 3 ranks
# Ranks that meet at their own stores, at an address and in a file;.
import os
from pathlib import Path


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
assert x.tolist() == [size**2] * 2 and prefixed.get(f"of{(rank + 1) % size}") == b"here"
assert not Path("/tmp/nowhere").exists()

# === fake_moved, 2 ranks, --fake --gpu
# Modules without data are moved, change their dtype, and make two steps with DDP.
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
model = nn.Linear(4, 4).to("cuda").to(torch.bfloat16)
model = DDP(model, device_ids=[rank])
for _ in range(3):
    model(torch.ones(2, 4, dtype=torch.bfloat16, device="cuda")).sum().backward()
assert model.module.weight.dtype is torch.bfloat16

# === real_process_awaited, 1 ranks
# While a real process runs, a deadline passes in real time.
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(0.2)"])
deadline = time.time() + 60
while process.poll() is None:
    assert time.time() < deadline
    time.sleep(0.05)
assert process.returncode == 0

# === environment_of_real_processes, 2 ranks
import os, subprocess, sys
os.environ[f"NOTE{rank}"] = "x"
code = "import os; print(sorted(k for k in os.environ if k[:4] in ('RANK', 'NOTE')), os.environ['RANK'])"
shown = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True).stdout
assert shown == f"['NOTE{rank}', 'RANK'] {rank}\n"
