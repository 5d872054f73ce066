# ranks: 2
# The full state of a sharded optimizer is gathered on rank 0 and sharded again.
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
rank = dist.get_rank()


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


model, opt = make()
torch.manual_seed(rank)
for _ in range(2):
    opt.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    opt.step()
on_rank0 = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *on_rank0):
    weights, states = [model.state_dict()], [FSDP.optim_state_dict(model, opt)]
for objects in (weights, states):
    dist.broadcast_object_list(objects, src=0)
other, other_opt = make()
with FSDP.state_dict_type(other, StateDictType.FULL_STATE_DICT):
    other.load_state_dict(weights[0])
    FSDP.optim_state_dict_to_load(other, other_opt, states[0])
for mine, loaded in zip(model.parameters(), other.parameters(), strict=True):
    assert torch.equal(mine, loaded)
