# ranks: 4
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
one = torch.tensor([r + 1.0])

t = one.clone(); dist.all_reduce(t, dist.ReduceOp.PRODUCT); assert t.item() == 24
t = one.clone(); dist.all_reduce(t, dist.ReduceOp.MAX); assert t.item() == n
t = one.clone(); dist.broadcast(t, src=2); assert t.item() == 3
t = one.clone(); dist.reduce(t, dst=1)
if r == 1:
    assert t.item() == 10
parts = [torch.empty(1) for _ in range(n)]
dist.all_gather(parts, one); assert torch.cat(parts).tolist() == [1, 2, 3, 4]
whole = torch.empty(n); dist.all_gather_into_tensor(whole, one); assert whole.tolist() == [1, 2, 3, 4]
dist.gather(one, parts if r == 0 else None, dst=0)
got = torch.empty(1)
dist.scatter(got, list(torch.arange(4.0).view(4, 1)) if r == 0 else None, src=0); assert got.item() == r
dist.reduce_scatter_tensor(got, torch.arange(4.0)); assert got.item() == 4.0 * r
out = torch.empty(n); dist.all_to_all_single(out, torch.arange(4.0) + 10 * r); assert out.tolist() == [r, 10 + r, 20 + r, 30 + r]
dist.barrier()
dist.destroy_process_group()
