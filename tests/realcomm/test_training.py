"""Training on real ranks gives the same model on all of them, equal to one process on the joint batch."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from collectives import InputError, find_algorithm, recv, send
from collectives.declaration import algorithm
from collectives.errors import RunFailed
from collectives.training.gradients import RESNETS, STEMS, resnet_gradients
from collectives.training.workload import Buckets, Training
from realcomm.training.datasets import Shard, held_out_batches
from realcomm.training.models import build_model, build_resnet
from realcomm.training.replica import load_schedule, make_replica
from realcomm.training.running import RunningTraining
from realcomm.training.trainer import train
from simcomm import this_machine

RING, NAIVE = find_algorithm("all_reduce/ring"), find_algorithm("all_reduce/naive")
TWO = SimpleNamespace(world_size=2, hosts=("h0", "h0"))
MODEL = f"{Path(__file__).with_name('faulty_model.py')}:build"
STEPS = 4
PHASES = ["loading", "forward", "backward", "sync", "optimizer"]


def small(gradient_sync, **changed):
    return Training(gradient_sync, **{"model": MODEL, "batch_size": 8, "epochs": 1, **changed})


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    weights, reports = tmp_path_factory.mktemp("ring") / "weights.pt", []
    trace = train(small(RING), TWO, steps=STEPS, weights_file=weights, progress=lambda *news: reports.append(news))
    return SimpleNamespace(trace=trace, weights=torch.load(weights, weights_only=True), reports=reports, file=weights)


def test_every_rank_and_step_has_consecutive_phases(ring):
    trace = ring.trace
    assert (trace.title, trace.kind, trace.world_size) == ("training/ring", "measured", 2)
    assert (trace.nodes, trace.hosts) == (["h0"], ["h0", "h0"])
    for rank in range(2):
        spans = [span for span in trace.spans if span.rank == rank]
        assert [(span.step, span.name) for span in spans] == [(s, name) for s in range(STEPS) for name in PHASES]
        assert all(before.end <= after.begin for before, after in pairwise(spans))
        assert all(span.begin < span.end for span in spans) and spans[0].begin > 0
    assert trace.elapsed == pytest.approx(max(s.end for s in trace.spans) - min(s.begin for s in trace.spans))
    ends = {(span.rank, span.step, span.name): span.end for span in trace.spans}
    for step in range(STEPS):
        slowest = max(ends[rank, step, "backward"] for rank in range(2))
        assert all(ends[rank, step, "sync"] > slowest for rank in range(2))


@pytest.mark.slow
def test_two_epochs_on_two_ranks_learn_the_digits():
    facts = train(Training(RING, epochs=2), TWO).facts
    assert (facts["examples_seen"], facts["epochs"]) == (2 * 2 * 22 * 32, 2)
    assert facts["test_accuracy"] > 0.9


def test_training_trace_states_images_epochs_warmup_and_loss(ring):
    facts = ring.trace.facts
    assert (facts["batch_size"], facts["replicas_identical"]) == (8, 1.0)
    assert facts["examples_seen"] == 2 * 8 * STEPS
    assert facts["epochs"] == pytest.approx(STEPS / (1437 // 2 // 8))
    assert facts["warmup_steps"] == STEPS - 1
    assert 0.5 < facts["final_loss"] < 10
    assert 0 < facts["single_rank_step_s"] < 10


@pytest.mark.slow
def test_ddp_buckets_overlap_backward():
    spans = list(train(small(None), TWO, steps=2).spans)
    buckets = [span for span in spans if span.name.startswith("bucket")]
    assert {(span.rank, span.step) for span in buckets} == {(rank, step) for rank in range(2) for step in range(2)}
    for bucket in buckets:
        [backward] = [
            span for span in spans if (span.name, span.rank, span.step) == ("backward", bucket.rank, bucket.step)
        ]
        assert backward.begin < bucket.begin < bucket.end <= backward.end


def test_rank_0_reports_its_progress(ring):
    training = [news for news in ring.reports if "training/ring" in news[3]]
    assert [news[:3] for news in training] == [(0, step + 1, STEPS) for step in range(STEPS)]
    assert training[-1][3].startswith("training/ring epoch 1/1 loss ")


def test_test_accuracy_matches_the_saved_weights(ring):
    model = build_model(small(RING), seed=9)
    model.load_state_dict(ring.weights)
    model.eval()
    with torch.inference_mode():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in held_out_batches(small(RING), 0, 1))
    assert ring.trace.facts["test_accuracy"] == pytest.approx(right / 360, abs=1.5 / 360)
    assert [path.name for path in ring.file.parent.iterdir()] == ["weights.pt"]


def test_non_finite_loss_names_step_phase_and_source():
    run = SimpleNamespace(rank=1, done=7, model=nn.Linear(2, 2), batch=(torch.ones(2), torch.zeros(2)))
    for spoil, why in ((None, "weights and images are finite"), (run.batch[0], "images"), (run.model.bias, "bias")):
        if spoil is not None:
            spoil.data[1] = torch.inf
        with pytest.raises(RunFailed, match=f"^the loss of step 7 is nan after the forward pass; its {why}"):
            RunningTraining._check_loss(run, float("nan"))  # type: ignore[arg-type]


def tiny_model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.ReLU(), nn.Linear(16, 10))


def test_learning_rate_scales_with_ranks_only_if_requested():
    for scales, rate in ((False, 0.25), (True, 0.5)):
        replica = make_replica(tiny_model(), small(RING, learning_rate=0.25, scale_learning_rate=scales), world_size=2)
        assert replica.optimizer.param_groups[0]["lr"] == rate


def test_resuming_with_more_epochs_extends_the_schedule():
    """A finished cosine schedule has a rate of zero, which must not affect the first resumed step."""
    recipe = small(RING, learning_rate=0.1, schedule="cosine", warm_up=2)
    short, long = (make_replica(tiny_model(), recipe, steps=steps) for steps in (6, 12))
    for replica in (short, short, short, short, short, short, *[long] * 6):
        replica.optimizer.step()
        replica.scheduler.step()
    again = make_replica(tiny_model(), recipe, steps=12)
    load_schedule(again, short.optimizer.state_dict(), short.scheduler.state_dict())
    assert short.optimizer.param_groups[0]["lr"] == 0
    assert again.optimizer.param_groups[0]["lr"] == long.optimizer.param_groups[0]["lr"] > 0.05


def test_epoch_gives_every_image_to_at_most_one_rank():
    shards = [Shard(Training(RING, epochs=2), rank, 3) for rank in range(3)]
    steps = 1437 // 3 // 32
    batches = [list(shard) for shard in shards]
    assert [len(dealt) for dealt in batches] == [shard.steps for shard in shards] == [2 * steps] * 3
    epochs = [
        torch.cat([x for dealt in batches for x, _ in dealt[part]]) for part in (slice(steps), slice(steps, None))
    ]
    assert [len(images.unique(dim=0)) for images in epochs] == [3 * 32 * steps] * 2
    assert not torch.equal(*epochs)
    shares = [torch.cat([x for x, _ in held_out_batches(Training(RING), rank, 7)]) for rank in range(7)]
    assert {len(share) for share in shares} == {51, 52}
    assert len(torch.cat(shares).unique(dim=0)) == 360


@pytest.fixture
def no_launch(monkeypatch):
    monkeypatch.setattr("realcomm.training.trainer.launch", lambda *args, **named: pytest.fail("a process was started"))


@pytest.mark.usefixtures("no_launch")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dataset": "imagefolder"}, "needs data_folder"),
        ({"num_workers": -1}, "num_workers must be a non-negative integer, not -1"),
        ({"random_crop": 33}, "random_crop must be at most 32 for images of 32 x 32, not 33"),
        ({"flip": "yes"}, "flip must be True or False, not 'yes'"),
        ({"batch_size": 1000}, "2000 images per step, but digits has only 1437; .* 718"),
        ({"model": "your.py:build"}, "your.py: no such file"),
        ({"precision": "fp16"}, "precision 'fp16' needs GPUs"),
    ],
)
def test_invalid_training_is_rejected_before_any_process_starts(changed, message):
    with pytest.raises(InputError, match=message):
        train(small(RING, **changed), TWO)


@algorithm("all_reduce", chunks=1)
def forgets_to_add(rank, world_size):
    yield send(1 - rank, 0), recv(1 - rank, 0)


@pytest.mark.usefixtures("no_launch")
def test_sync_that_does_not_average_is_rejected():
    with pytest.raises(InputError, match="lacks the contribution of rank 0"):
        train(small(forgets_to_add), TWO)


@pytest.mark.usefixtures("no_launch")
def test_sync_with_differing_addition_orders_is_rejected():
    sync = find_algorithm("all_reduce/unchunked_ring")
    for changed in ({}, {"sync_every": 2}, {"buckets": Buckets(hook="ddp")}):
        with pytest.raises(InputError, match="its 3 ranks add in different orders"):
            train(small(sync, **changed), this_machine(3))


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("name", RESNETS)
def test_gradients_match_torchvision_in_backward_order(name, stem):
    with torch.device("meta"):
        model = build_resnet(Training(RING, name, stem=stem, classes=7))
    sizes = [parameter.nbytes for parameter in model.parameters()]
    gradients = resnet_gradients(name, 7, stem)
    assert sorted(gradient.nbytes for gradient in gradients) == sorted(sizes)
    assert [gradient.nbytes for gradient in gradients[:2]] == sizes[:-3:-1] and gradients[-1].nbytes == sizes[0]
    assert [gradient.ready for gradient in gradients] == sorted(gradient.ready for gradient in gradients)
