"""The predicted step of a training whose gradients travel in buckets, against arithmetic."""

from dataclasses import replace

import pytest

import simcomm
from collectives import InputError, find_algorithm
from collectives.training.gradients import fill_buckets
from collectives.training.workload import Buckets, ComputePhases, Training
from ringlab.shared.figures import training_figures

RING = find_algorithm("all_reduce/ring")
STAR = simcomm.star(4, "10 Gbit/s", "5 us")
COMPUTE = ComputePhases(forward=0.02, backward=0.06, optimizer=0.001)


def predict(**changed):
    training = Training(**{"gradient_sync": RING, "compute": COMPUTE, "buckets": Buckets(), **changed})
    trace = simcomm.train(training, STAR, steps=2)
    return training, trace, training_figures(trace, training)


def test_the_last_bucket_ends_the_step_where_the_network_is_slow():
    training, trace, entry = predict()
    buckets = fill_buckets(training.gradients)
    seconds = [simcomm.run(RING, STAR, bucket.nbytes, op="mean").elapsed for bucket in buckets]
    end = 0.0
    for bucket, own in zip(buckets, seconds, strict=True):
        end = max(end, bucket.ready * COMPUTE.backward) + own
    assert sum(bucket.nbytes for bucket in buckets) == training.gradient_bytes and len(buckets) == 3
    assert entry.step_s == pytest.approx(COMPUTE.forward + max(end, COMPUTE.backward) + COMPUTE.optimizer)
    assert trace.title == "training/ring[overlap]" and entry.backward_s == pytest.approx(COMPUTE.backward)
    exposed = pytest.approx(max(end, COMPUTE.backward) - COMPUTE.backward)
    assert (entry.sync_s, entry.exposed_s) == (exposed, exposed)
    _, _, by_torch = predict(buckets=Buckets(hook="ddp"))
    assert (by_torch.sync_s, by_torch.exposed_s) == (0.0, exposed)
    assert by_torch.step_s == pytest.approx(entry.step_s)
    plain = training_figures(simcomm.train(replace(training, buckets=None), STAR), training)
    assert COMPUTE.total < entry.step_s < plain.step_s < COMPUTE.total + sum(seconds) * 1.001


def test_one_bucket_for_everything_hides_nothing():
    _, _, entry = predict(buckets=Buckets(mb=1000), model="my.py:build", parameters=200_000)
    alone = simcomm.run(RING, STAR, 800_000, op="mean").elapsed
    assert entry.step_s == pytest.approx(COMPUTE.total + alone)


def test_trouble_and_engines_are_refused_and_a_model_of_unknown_size():
    with pytest.raises(InputError, match="predicted by formula, without simulated messages"):
        simcomm.train(Training(RING, compute=COMPUTE, buckets=Buckets()), STAR, engine="simpy")
    with pytest.raises(InputError, match=r"'my.py:build' is executed by a run only; for a prediction give its number"):
        predict(model="my.py:build")
