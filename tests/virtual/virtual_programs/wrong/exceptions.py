# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === lists_of_all, 2 ranks: exception
t = torch.ones(2)
out = [torch.empty(2) for _ in range(dist.get_world_size())]
dist.gather(t, gather_list=out, dst=0)  # reported: 1  # fix: dist.gather(t, gather_list=out if dist.get_rank() == 0 else None, dst=0)

# === module_left_on_cpu, 2 ranks, --gpu: exception
# The module is wrapped before it is moved.
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
linear = nn.Linear(2, 2)  # fix: linear = nn.Linear(2, 2).cuda()
model = DDP(linear, device_ids=[dist.get_rank()])  # reported
model.cuda()

# === module_without_device, 2 ranks, --gpu: exception
# The batch is moved to the GPU, and the module is not.
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
linear = nn.Linear(2, 2)  # fix: linear = nn.Linear(2, 2).cuda()
model = DDP(linear)  # reported
model(torch.randn(4, 2).cuda()).sum().backward()

# === objects_before_the_device, 2 ranks, --gpu: exception
# Objects are gathered before ranks have chosen their GPUs, on which NCCL carries them.
dist.init_process_group("nccl")
# fix: torch.cuda.set_device(dist.get_rank())
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, dist.get_rank())  # reported: 0; 1
torch.cuda.set_device(dist.get_rank())

# === one_gpu_for_all, 2 ranks, --gpu: exception
# No rank chooses its GPU: all are on the first.
dist.init_process_group("nccl")
# fix: torch.cuda.set_device(dist.get_rank())
x = torch.ones(4).cuda()
dist.all_reduce(x)  # reported: 0; 1

# === one_raises, 4 ranks: exception
def load(rank, step):
    width = 7 if (rank, step) == (2, 1) else 8   # a broken file  # fix: width = 8
    return torch.zeros(4, width)

model = DDP(torch.nn.Linear(8, 1))
for step in range(3):
    out = model(load(dist.get_rank(), step))  # reported: 2
    out.sum().backward()

# === place_as_source, 4 ranks: exception: group_src=0 or group_dst=0
# The second pair passes a group rank as the source, where a global rank is expected.
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
pair = pairs[dist.get_rank() // 2]
t = torch.ones(1)
dist.broadcast(t, src=0, group=pair)  # reported  # fix: dist.broadcast(t, group_src=0, group=pair)

# === rank_as_device, 4 ranks, --gpu --per-node 2: exception
# The rank of the world is taken for the GPU's number, on two machines.
import os

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())  # reported  # fix: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.barrier()

# === spawned_raises, 0 ranks: exception
import os
import torch.multiprocessing as mp

def main(rank, size):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29555")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    labels = {0: "cat", 1: "dog"}  # fix: labels = {0: "cat", 1: "dog", 2: "bird"}
    print(labels[rank])  # reported: 2
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(main, args=(3,), nprocs=3)

# === static_head, 2 ranks: unused parameters
# With static_graph=True, a head is computed but not used in the loss.
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.auxiliary = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.body(x)
        return x, self.auxiliary(x)

model = DDP(Net(), static_graph=True)  # fix: model = DDP(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(2, 4))[0].sum().backward()  # reported
    opt.step()

# === tensor_on_cpu, 2 ranks, --gpu: exception
# A metric is summed where it was counted: on the CPU, which NCCL does not have.
import os

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
loss = torch.ones(3, device="cuda").mean()
seen = torch.tensor([loss.item(), 1.0])  # fix: seen = torch.tensor([loss.item(), 1.0], device="cuda")
dist.all_reduce(seen)  # reported

# === unused_head, 2 ranks: unused parameters
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.auxiliary = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

model = DDP(Net())  # fix: model = DDP(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 4)).sum().backward()  # reported
    opt.step()
