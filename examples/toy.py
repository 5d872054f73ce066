"""The smallest data-parallel training: two ranks train one parameter, with the sum of their gradients.

The loss of each rank is (x - parameter)^2, with its own x. After one step from 2.0, both ranks have 1.4 =
2.0 - 0.1 * (4 + 2).
"""

import torch

import realcomm
import simcomm

X = [0.0, 1.0]  # of rank 0 and rank 1
START = 2.0
LEARNING_RATE = 0.1


def own_gradient(rank: int) -> torch.Tensor:
    """Return the gradient of this rank's loss at the start; shape [1]."""
    parameter = torch.tensor([START], requires_grad=True)
    loss = (X[rank] - parameter).square().sum()
    return torch.autograd.grad(loss, parameter)[0]


def real_rank(rank: int, world_size: int) -> float:
    """Return the parameter after one step, as one rank among real processes."""
    gradient = own_gradient(rank)
    realcomm.all_reduce(gradient, algorithm="ring")
    return START - LEARNING_RATE * gradient.item()


def main() -> None:
    for rank, parameter in enumerate(realcomm.launch(real_rank, world_size=2)):
        print(f"real rank {rank}: {parameter:g}")
    gradients = [own_gradient(rank).numpy() for rank in range(2)]
    simcomm.run("all_reduce/ring", simcomm.star(2, "10 Gbit/s", "5 us"), buffers=gradients)
    for rank, gradient in enumerate(gradients):
        print(f"simulated rank {rank}: {START - LEARNING_RATE * gradient.item():g}")


if __name__ == "__main__":
    main()
