# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === all_save, 3 ranks: file race
import os, tempfile

path = os.path.join(tempfile.gettempdir(), f"model_{os.environ['TORCHELASTIC_RUN_ID'] if 'TORCHELASTIC_RUN_ID' in os.environ else 0}.pt")
model = torch.nn.Linear(2, 2)
torch.save(model.state_dict(), path)  # reported: 0-2  # fix: if dist.get_rank() == 0: torch.save(model.state_dict(), path)
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)

# === changed_while_reduced, 4 ranks: buffer in use
# Statistics are updated while their all_reduce is pending.
counts = torch.zeros(8)
for i in range(3):
    counts += 1
    work = dist.all_reduce(counts, async_op=True)  # reported: 0-3
    counts[i] += 1  # fix:
    work.wait()
    # fix: counts[i] += 1

# === changed_while_sent, 2 ranks: buffer in use
if dist.get_rank() == 0:
    buffer = torch.zeros(1000)
    handles = []
    for i in range(3):
        buffer.fill_(i)  # one buffer for all three messages
        handles.append(dist.isend(buffer, 1))  # reported: 0  # fix: handles.append(dist.isend(buffer.clone(), 1))
    for h in handles:
        h.wait()
else:
    got = torch.empty(1000)
    for i in range(3):
        dist.recv(got, 0)

# === handle_dropped, 3 ranks: missing wait
total = torch.ones(16) * dist.get_rank()
dist.all_reduce(total, async_op=True)  # reported: 0-2  # fix: dist.all_reduce(total, async_op=True).wait()
print(total[0].item())

# === list_of_one, 2 ranks: shared buffer
# A list that is multiplied holds one tensor as often as there are ranks.
parts = [torch.zeros(2)] * dist.get_world_size()  # fix: parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
dist.all_gather(parts, torch.full((2,), float(dist.get_rank())))  # reported: 0-1
print(torch.cat(parts))

# === load_without_barrier, 2 ranks: file race
# Rank 0 saves and all ranks load, but nothing orders loading after saving.
import os
import tempfile

path = os.path.join(tempfile.gettempdir(), "weights_of_epoch_4.pt")
model = torch.nn.Linear(2, 2)
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)  # reported: 0
# fix: dist.barrier()
model.load_state_dict(torch.load(path))  # reported: 1
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)

# === one_buffer_for_all, 3 ranks: buffer in use
# Every message is received into the same tensor, before any is waited for.
buffer = torch.zeros(4)
if rank == 0:
    handles = [dist.irecv(buffer, source) for source in range(1, world)]  # reported: 0  # fix: handles = [dist.irecv(torch.zeros(4), source) for source in range(1, world)]
    for handle in handles:
        handle.wait()
else:
    dist.send(torch.full((4,), float(rank)), 0)

# === own_doubling_of_six, 6 ranks: wrong all_reduce
# Recursive doubling on six ranks skips partners that do not exist.
total = torch.full((3,), float(rank + 1))
step = 1
while step < world:
    other = rank ^ step
    if other < world:
        got = torch.empty_like(total)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, total, other), dist.P2POp(dist.irecv, got, other)]):
            work.wait()
        total = total + got  # reported: 2-3
    step *= 2
    # fix: step = world
# fix: total = torch.full((3,), float(rank + 1))
# fix: dist.all_reduce(total)

# === own_ring_half_way, 4 ranks: wrong all_reduce
# A ring all_reduce stops after its first half, so each rank has only one correct chunk.
torch.manual_seed(rank)
parts = list(torch.randn(world * 3).chunk(world))
for step in range(world - 1):
    out, into = parts[(rank - step) % world], torch.empty(3)
    works = [dist.isend(out, (rank + 1) % world), dist.irecv(into, (rank - 1) % world)]
    for work in works:
        work.wait()
    parts[(rank - step - 1) % world] = parts[(rank - step - 1) % world] + into
# fix: for step in range(world - 1):
    # fix: out, into = parts[(rank + 1 - step) % world], torch.empty(3)
    # fix: works = [dist.isend(out, (rank + 1) % world), dist.irecv(into, (rank - 1) % world)]
    # fix: for work in works: work.wait()
    # fix: parts[(rank - step) % world] = into
result = torch.cat(parts)  # reported: 0-3

# === own_ring_once_too_often, 5 ranks: wrong all_reduce
# Whole tensors move one step too many around a ring, so each rank adds its own data twice.
torch.manual_seed(rank)
mine = torch.randn(6)
total, passing = mine.clone(), mine
for _ in range(world):  # fix: for _ in range(world - 1):
    received = torch.empty_like(mine)
    sending = dist.isend(passing, (rank + 1) % world)
    dist.recv(received, (rank - 1) % world)
    sending.wait()
    total += received  # reported: 0-4
    passing = received

# === three_handles, 2 ranks: missing wait
# A message, its answer and three reductions are posted, and no handle is kept.
peer = 1 - dist.get_rank()
got = torch.zeros(3)
handles = [dist.isend(torch.ones(3), peer)]  # reported: 0-1
handles.append(dist.irecv(got, peer))  # reported: 0-1
handles += [dist.all_reduce(torch.ones(size), async_op=True) for size in (1, 2, 3)]  # reported: 0-1
# fix: for handle in handles: handle.wait()
