# ranks: 3
import torch.distributed as dist

dist.init_process_group("gloo")
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
dist.destroy_process_group()
