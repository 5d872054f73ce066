# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === message_dtype, 2 ranks: message size
if dist.get_rank() == 0:
    dist.send(torch.arange(4), 1)  # reported: 0
else:
    ids = torch.empty(4)  # fix: ids = torch.empty(4, dtype=torch.int64)
    dist.recv(ids, 0)  # reported: 1

# === message_size, 2 ranks: message size
# The receiver omits the batch dimension.
HIDDEN, BATCH = 6, 4
if dist.get_rank() == 0:
    activations = torch.randn(BATCH, HIDDEN)
    dist.send(activations, dst=1)  # reported: 0
else:
    buffer = torch.empty(HIDDEN)  # fix: buffer = torch.empty(BATCH, HIDDEN)
    dist.recv(buffer, src=0)  # reported: 1

# === nccl_exchange, 2 ranks, --as nccl: nccl order
# A pair exchanges halos, each message by itself. On gloo it runs; NCCL does one after the other.
peer = 1 - dist.get_rank()
mine, theirs = torch.ones(1 << 20), torch.empty(1 << 20)
sending = dist.isend(mine, peer)  # reported: 0-1  # fix: works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)])
receiving = dist.irecv(theirs, peer)  # fix:
sending.wait()  # fix: for work in works: work.wait()
receiving.wait()  # fix:

# === off_by_one, 4 ranks: peer
# A hand-written scatter sends part i to rank i + 1.
part = torch.zeros(2)
if rank == 0:
    for i, p in enumerate(torch.arange(6.0).view(3, 2)[:2]):
        dist.send(p.clone(), dst=i + 2)  # fix: dist.send(p.clone(), dst=i + 1)
elif rank < 3:
    dist.recv(part, src=0)  # reported: 1

# === one_message_less, 3 ranks: missing message
# The first stage sends one micro-batch less than the others expect.
x = torch.zeros(4)
micro_batches = 3 if rank == 0 else 4  # fix: micro_batches = 4
for _ in range(micro_batches):
    if rank > 0:
        dist.recv(x, rank - 1)  # reported: 1-2
    if rank < world - 1:
        dist.send(x, rank + 1)

# === one_message_more, 2 ranks: surplus message
batch = torch.ones(3)
for i in range(5 if dist.get_rank() == 0 else 4):  # fix: for i in range(4):
    if dist.get_rank() == 0:
        dist.send(batch, 1)  # reported: 0
    else:
        dist.recv(batch, 0)

# === other_tag, 2 ranks: deadlock: tag 1
GRADIENTS, WEIGHTS = 1, 2
t = torch.zeros(8)
if dist.get_rank() == 1:
    dist.send(t, 0, tag=GRADIENTS)  # reported: 1
else:
    dist.recv(t, 1, tag=WEIGHTS)  # reported: 0  # fix: dist.recv(t, 1, tag=GRADIENTS)

# === peers_crossed, 4 ranks: deadlock: rank 0 sends to rank 1, which receives from rank 2
# Everybody sends to the right and receives from the right, so no half meets its other.
right = (dist.get_rank() + 1) % dist.get_world_size()
out, data = torch.empty(8), torch.rand(8)
both = [dist.P2POp(dist.isend, data, right), dist.P2POp(dist.irecv, out, right)]  # fix: both = [dist.P2POp(dist.isend, data, right), dist.P2POp(dist.irecv, out, (dist.get_rank() - 1) % 4)]
for work in dist.batch_isend_irecv(both):  # reported: 0-3
    work.wait()

# === recv_first, 4 ranks: deadlock
# Both partners of each pair receive before they send.
partner = dist.get_rank() ^ 1
theirs = torch.empty(16)
dist.recv(theirs, src=partner)  # reported: 0-3  # fix: receiving = dist.irecv(theirs, src=partner)
dist.send(torch.ones(16), dst=partner)
# fix: receiving.wait()

# === recv_from_itself, 3 ranks: deadlock: rank 0 receives from itself
# Rank 0 names itself where it should name the peer that answers.
rank, data = dist.get_rank(), torch.rand(8)
if rank == 0:
    dist.recv(data, 0)  # reported: 0  # fix: dist.recv(data, 1)
else:
    dist.recv(data, 0)  # fix: if rank == 1: dist.send(data, 0)

# === send_round, 3 ranks: deadlock
# Everybody sends to the right with a blocking call, which may return only when the other receives.
def shift(t):
    n, me = dist.get_world_size(), dist.get_rank()
    out = torch.empty_like(t)
    dist.send(t, (me + 1) % n)  # reported: 0-2  # fix: sending = dist.isend(t, (me + 1) % n)
    dist.recv(out, (me + n - 1) % n)
    # fix: sending.wait()
    return out

print(shift(torch.rand(512, 512)).sum())

# === while_others_wait, 3 ranks: deadlock
# Rank 0 waits in a collective for rank 1, which waits for a message from rank 0.
t = torch.ones(2)
if dist.get_rank() == 1:
    dist.recv(t, src=0)  # reported: 1
# fix: if dist.get_rank() == 0: dist.send(t, dst=1)
dist.all_reduce(t)  # reported: 0, 2
if dist.get_rank() == 0:  # fix:
    dist.send(t, dst=1)  # fix:
