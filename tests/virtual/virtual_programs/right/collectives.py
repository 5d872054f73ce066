# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === checkpoint_rank0, 2 ranks
import os, tempfile

folder = [tempfile.mkdtemp()] if rank == 0 else [None]
dist.broadcast_object_list(folder)
path = os.path.join(folder[0], "model.pt")
model = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    opt.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    opt.step()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, path)
dist.barrier()  # the file is there for all
state = torch.load(path, map_location="cpu")
model.module.load_state_dict(state["model"])
dist.barrier()
if rank == 0:
    os.remove(path)
    os.rmdir(folder[0])

# === elastic_env, 4 ranks
import os

for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    assert os.environ[name], name
restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
snapshot = {"epoch": 2} if restart else {"epoch": 0}
t = torch.tensor([snapshot["epoch"]])
dist.all_reduce(t, op=dist.ReduceOp.MIN)  # all go on from what all have
for epoch in range(int(t), 3):
    dist.barrier()
if int(os.environ["LOCAL_RANK"]) == 0:
    print("a host has finished")

# === empty_tensors, 2 ranks, --strict
# Tensors without elements, in flight beside others of the kind: they share no memory.
nothing, other = torch.zeros(0), torch.zeros(0)
handle = dist.all_reduce(nothing, async_op=True)
assert other.tolist() == (other + 1).tolist() == []
handle.wait()
handles = [dist.irecv(torch.zeros(0), 1 - dist.get_rank(), tag=tag) for tag in range(2)]
handles += [dist.isend(torch.zeros(0, 3), 1 - dist.get_rank(), tag=tag) for tag in range(2)]
for handle in handles:
    handle.wait()
dist.reduce(nothing, 0)
print(torch.zeros(0).sum().item())

# === objects, 3 ranks
rank, n = dist.get_rank(), dist.get_world_size()
config = [{"lr": 0.1, "name": "run"}] if rank == 0 else [None]
dist.broadcast_object_list(config, src=0)
assert config[0]["lr"] == 0.1
gathered = [None] * n
dist.all_gather_object(gathered, {"rank": rank, "files": ["x"] * (rank * 40)})
assert [f["rank"] for f in gathered] == list(range(n))
at_root = [None] * n if rank == 1 else None
dist.gather_object("word" * rank, at_root, dst=1)
mine = [None]
dist.scatter_object_list(mine, [f"part {i}" for i in range(n)] if rank == 0 else None, src=0)
assert mine[0] == f"part {rank}"

# === parameter_server, 3 ranks
# Rank 0 serves requests in order of arrival.
w = torch.zeros(4)
ROUNDS = 3
if rank == 0:
    for _ in range(ROUNDS * (world - 1)):
        grad = torch.empty(4)
        who = dist.recv(grad)
        w -= 0.1 * grad
        dist.send(w, who)
else:
    for i in range(ROUNDS):
        dist.send(torch.ones(4) * rank, 0)
        dist.recv(w, 0)
dist.barrier()

# === profiled, 3 ranks
# All ranks profile a few steps at once, and one by a schedule.
import tempfile

from torch.profiler import profile, record_function, schedule

rank, model, ready = dist.get_rank(), nn.Linear(8, 8), []
with profile() as profiler:
    for _ in range(2):
        with record_function("work"):
            x = model(torch.ones(2, 8)).detach()
        dist.all_reduce(x)
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    profiler.export_chrome_trace(file.name)
with profile(schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready.append) as profiler:
    for _ in range(5):
        model(torch.ones(2, 8))
        dist.barrier()
        profiler.step()
counts = {event.key: event.count for event in profiler.key_averages()}
assert len(ready) == 1 and counts.get("aten::linear", 2) == 2

# === subgroups, 4 ranks
# A 2 x 2 grid: every rank creates all groups and keeps its own.
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
row, column = rows[rank // 2], columns[rank % 2]
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=row)
dist.all_reduce(x, group=column)
assert x.item() == 6
diagonal = dist.new_group(ranks=[0, 3])
if rank in (0, 3):
    y = torch.tensor([rank])
    dist.broadcast(y, src=3, group=diagonal)
    assert y.item() == 3
dist.monitored_barrier()

# === warnings_apart, 2 ranks
# A rank turns its warnings into errors, or records them; the other's are what they were.
import time
import warnings

if rank == 0:
    warnings.filterwarnings("error")
dist.barrier()
try:
    warnings.warn("of this rank", stacklevel=1)
    assert rank == 1
except UserWarning:
    assert rank == 0
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.barrier()
    for _ in range(rank + 1):
        warnings.warn("recorded", stacklevel=1)
    dist.barrier()
assert len(caught) == rank + 1
for seconds in (0.25, 0.01, 1e-4):
    begin = time.time()
    time.sleep(seconds)
    assert time.time() - begin >= seconds

# === work_queue, 3 ranks
# Ranks take numbered tasks from a counter in the store until none is left.
from torch.distributed import distributed_c10d

store = distributed_c10d._get_default_store()
TASKS, done = 7, []
while (task := store.add("next", 1) - 1) < TASKS:
    done.append(task)
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, done)
assert sorted(t for part in everything for t in part) == list(range(TASKS))
store.set(f"finished/{dist.get_rank()}", "yes")
store.wait([f"finished/{r}" for r in range(dist.get_world_size())])
dist.barrier()
