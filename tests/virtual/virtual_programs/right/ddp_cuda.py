# ranks: 2
# options: --gpu
import os, torch, torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device(f"cuda:{local}"))
torch.cuda.manual_seed(local)
model = DDP(torch.nn.Linear(8, 4).cuda(), device_ids=[local])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(2):
    x, y = torch.randn(4, 8).cuda(), torch.randint(4, (4,), device="cuda")
    F.cross_entropy(model(x), y).backward()
    opt.step()
    opt.zero_grad()
end.record()
torch.cuda.synchronize()
if dist.get_rank() == 0:
    print(start.elapsed_time(end), "ms", torch.cuda.get_device_name())
dist.destroy_process_group()
