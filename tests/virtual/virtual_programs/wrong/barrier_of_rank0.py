# kind: collective mismatch
# ranks: 4
import torch, torch.distributed as dist

def save(model, path="/dev/null"):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
        dist.barrier()  # reported: 0  # fix:
    # fix: dist.barrier()

dist.init_process_group("gloo")
model = torch.nn.Linear(3, 3)
for step in range(3):
    count = torch.ones(1)
    dist.all_reduce(count)  # reported: 1-3
    save(model)
