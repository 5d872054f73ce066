# ranks: 0
"""A course's trainer: a small residual network, its gradients averaged by hand, spawned by the program itself."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class TrainingArgs:
    world_size: int = 2
    batch_size: int = 8
    epochs: int = 2
    learning_rate: float = 0.05


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm(self.conv(x)))


class DistResNetTrainer:
    def __init__(self, args: TrainingArgs, rank: int) -> None:
        self.args, self.rank = args, rank

    def pre_training_setup(self) -> None:
        torch.manual_seed(self.rank)
        self.model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), ResidualBlock(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
        )
        for parameter in self.model.parameters():
            dist.broadcast(parameter.data, src=0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate)
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(64) % 2
        images = torch.randn(64, 1, 6, 6, generator=generator) + 2.0 * labels[:, None, None, None]
        data = TensorDataset(images, labels)
        self.sampler = DistributedSampler(data, num_replicas=self.args.world_size, rank=self.rank)
        self.loader = DataLoader(data, self.args.batch_size, sampler=self.sampler)

    def training_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= self.args.world_size
        self.optimizer.step()
        return loss.detach()

    @torch.inference_mode()
    def evaluate(self) -> float:
        self.model.eval()
        counts = torch.zeros(2)
        for images, labels in self.loader:
            counts += torch.tensor([(self.model(images).argmax(1) == labels).sum(), len(labels)])
        dist.all_reduce(counts)
        self.model.train()
        return float(counts[0] / counts[1])

    def train(self) -> float:
        self.pre_training_setup()
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            for images, labels in self.loader:
                self.training_step(images, labels)
        return self.evaluate()


def dist_train(rank: int, world_size: int, args: TrainingArgs) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12345"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    trainer = DistResNetTrainer(args, rank)
    accuracy = trainer.train()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])
    gathered = [torch.zeros_like(weights) for _ in range(world_size)]
    dist.all_gather(gathered, weights)
    assert all(torch.equal(gathered[0], other) for other in gathered), "all ranks keep one model"
    if rank == 0:
        print(f"accuracy {accuracy:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    args = TrainingArgs()
    mp.spawn(dist_train, args=(args.world_size, args), nprocs=args.world_size, join=True)
