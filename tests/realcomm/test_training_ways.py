"""Every way of syncing gives the weights of one process on the joint batch, and differences between ranks are named."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from collectives import find_algorithm
from collectives.errors import RunFailed
from collectives.training.gradients import Gradient
from collectives.training.workload import Buckets, Training
from realcomm.launching.launcher import launch
from realcomm.training.gradient_sync import LocalSteps, no_sync
from realcomm.training.models import synchronize_batch_norm
from realcomm.training.replica import Replica, make_replica, take_step
from realcomm.training.replica_checks import ReplicaChecks, check_equal_steps, find_difference
from realcomm.training.running import make_replica_and_sync
from realcomm.training.stopwatch import Stopwatch

TWO = SimpleNamespace(world_size=2, hosts=("h0", "h0"))
RING = find_algorithm("all_reduce/ring")
STEPS, LEARNING_RATE = 3, 0.1
PIECES = {"accumulate": 2, "clip_norm": 0.05}
WAYS: dict[str, dict[str, object]] = {
    "ring": {},
    "naive": {"gradient_sync": find_algorithm("all_reduce/naive")},
    "ring[overlap]": {"buckets": Buckets(mb=0.0005)},
    "ring[hook=ddp]": {"buckets": Buckets(mb=0.0005, hook="ddp")},
    "ddp": {"gradient_sync": None},
    "ring, two pieces": {**PIECES},
    "ring[overlap], two pieces": {**PIECES, "buckets": Buckets()},
    "ddp, two pieces": {**PIECES, "gradient_sync": None},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "warm_up": 2, "schedule": "linear"},
}


def tiny_model(*norms: nn.Module) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 16), *norms, nn.ReLU(), nn.Linear(16, 10))


def steps_of(replica: Replica, sync, rank: int, world_size: int) -> list[torch.Tensor]:
    """The weights after a few steps on a share of the joint batch."""
    drawn = torch.Generator().manual_seed(1)
    joint = torch.randn(12, 8, generator=drawn), torch.randint(10, (12,), generator=drawn)
    images, labels = (half.tensor_split(world_size)[rank] for half in joint)
    for _ in range(STEPS):
        take_step(replica, images, labels, sync, Stopwatch(rank))
    return [parameter.detach() for parameter in replica.model.parameters()]


def train_tiny(rank: int, world_size: int, way: dict, model: nn.Module | None = None):
    training = Training(**{"gradient_sync": RING, "learning_rate": LEARNING_RATE, "batch_size": 12, **way})
    replica, sync = make_replica_and_sync(model or tiny_model(), training, rank, world_size, steps=8)
    return steps_of(replica, sync, rank, world_size), sync, replica


def train_alone(way: dict, model: nn.Module | None = None) -> list[torch.Tensor]:
    alone = {key: value for key, value in way.items() if key not in ("gradient_sync", "buckets")}
    training = Training(RING, learning_rate=LEARNING_RATE, batch_size=12, **alone)
    return steps_of(make_replica(model or tiny_model(), training, steps=8), no_sync, 0, 1)


def torchs_buckets(rank: int, world_size: int, mb: float) -> tuple[int, int]:
    """Return torch's number of buckets for a model with two gradients above 1 MiB, and our number."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 40_000), nn.ReLU(), nn.Linear(40_000, 10))
    training, watch = Training(None, batch_size=12, buckets=Buckets(mb)), Stopwatch(rank)
    replica, sync = make_replica_and_sync(model, training, rank, world_size)
    sync.record_buckets(watch)
    steps_of(replica, sync, rank, world_size)
    gradients = [Gradient(each.nbytes, 1.0) for each in reversed(list(model.parameters()))]
    return len({span.name for span in watch.spans}), len(training.fill_buckets(gradients))


def all_ways(rank: int, world_size: int):
    """Return weights by way of syncing; for the overlapped one also order and buckets."""
    weights, overlapped = {}, None
    for name, way in WAYS.items():
        weights[name], sync, _ = train_tiny(rank, world_size, way)
        overlapped = sync if name == "ring[overlap]" else overlapped
    norm = synchronize_batch_norm(tiny_model(nn.BatchNorm1d(16)))
    weights["norm"] = train_tiny(rank, world_size, {"buckets": Buckets()}, norm)[0]
    filled = [torchs_buckets(rank, world_size, mb) for mb in (Buckets.mb, 10)]
    return weights, overlapped.order, [len(each.parameters) for each in overlapped._buckets], filled


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_every_sync_matches_one_process_on_the_global_batch(world_size):
    expected = {name: train_alone(way) for name, way in WAYS.items()}
    expected["norm"] = train_alone({}, tiny_model(nn.BatchNorm1d(16)))
    for weights_by_way, order, buckets, filled in launch(all_ways, world_size):
        for name, weights in expected.items():
            torch.testing.assert_close(weights_by_way[name], weights, rtol=1e-4, atol=1e-6, msg=f"{name} differs")
        assert (sorted(order), buckets) == ([0, 1, 2, 3], [2, 2])
        assert filled == [(2, 2), (1, 1)], "torch begins with a bucket of 1 MiB only where it is told no size"
    assert not torch.equal(expected["ring"][0], expected["ring, two pieces"][0]), "the gradients are clipped"


class Branches(nn.Module):
    def __init__(self, is_used: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.is_used = nn.Linear(8, 10), nn.Linear(8, 10), is_used

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.first(images) + (self.second(images) if self.is_used else 0)


def faults(rank: int, world_size: int):
    """Return the results of the checks on ranks that differ in weights, branches and steps, and of local SGD."""
    results = {"branches": train_tiny(rank, world_size, {"buckets": Buckets(mb=0.0001)}, Branches(rank == 1))[0]}
    model = Branches(rank == 1)
    assert find_difference(model) is None
    with torch.no_grad():
        model.second.bias[3] += float(rank)
    assert find_difference(model) == ("second.bias", [1])
    running = SimpleNamespace(model=model, done=4, steps=5 + rank, training=SimpleNamespace(sync_every=1))
    different = r"differ after step 3 \(never equal before\): parameter second.bias of rank 1 differs from rank 0's$"
    with pytest.raises(RunFailed, match=different):
        ReplicaChecks(2).step_done(running, SimpleNamespace(step=3))
    with pytest.raises(RunFailed, match="rank 0 has 5, rank 1 has 6; use the same images on all ranks"):
        check_equal_steps(running)
    torch.manual_seed(rank)  # no broadcast: every rank begins elsewhere
    unlike = nn.Linear(8, 10)
    train_tiny(rank, world_size, {}, unlike)
    assert find_difference(unlike) == ("weight", [1]), "averaged gradients do not bring weights together"
    _, local, replica = train_tiny(rank, world_size, {"sync_every": 4})
    assert isinstance(local, LocalSteps)
    results["local before"] = [each.detach().clone() for each in replica.model.parameters()]
    local.average_weights(replica.gradients)
    results["local after"] = [each.detach() for each in replica.model.parameters()]
    return results


def test_local_batch_norm_statistics_are_averaged_at_the_end():
    first, second = launch(faults, 2)
    torch.testing.assert_close(first["branches"], second["branches"], rtol=0, atol=0)
    befores = first["local before"], second["local before"]
    assert not torch.equal(befores[0][0], befores[1][0])
    for results in (first, second):
        torch.testing.assert_close(results["local after"], [(a + b) / 2 for a, b in zip(*befores, strict=True)])
