# kind: file race
# ranks: 2
import json, os, tempfile
import torch.distributed as dist
dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
result = {"rank": dist.get_rank(), "accuracy": 0.9}
with open(os.path.join(folder[0], "result.json"), "w") as file:  # reported: 0-1  # fix: with open(os.path.join(folder[0], f"result{dist.get_rank()}.json"), "w") as file:
    json.dump(result, file)
