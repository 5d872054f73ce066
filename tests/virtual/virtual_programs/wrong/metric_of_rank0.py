# kind: collective mismatch
# ranks: 4
import torch, torch.distributed as dist

class Accuracy:
    def __init__(self):
        self.right = torch.zeros(1)
    def compute(self):
        dist.reduce(self.right, dst=0)  # reported: 0
        return self.right.item()

dist.init_process_group("gloo")
accuracy = Accuracy()
# fix: right = accuracy.compute()
if dist.get_rank() == 0:
    print("accuracy", accuracy.compute())  # fix: print("accuracy", right)
dist.barrier()  # reported: 1-3
