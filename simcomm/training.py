"""The training step as a timeline in virtual time: forward, backward, gradient sync, optimizer."""

from dataclasses import replace

from collectives.calibration.calibration import Calibration, cached_calibration
from collectives.checks import check_cluster
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.training.workload import Training, check_training
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.time_models.choice import time_model
from simcomm.time_models.options import SimulationOptions


def train(
    training: Training,
    cluster: Cluster,
    *,
    steps: int | None = None,
    calibration: Calibration | None = None,
    engine: str | None = None,
    record: Record | bool = True,
    trouble: Trouble = NO_TROUBLE,
) -> Trace:
    """Simulate ``steps`` training steps, by default as many as show what all of them take.

    Compute phases come from the training's own numbers or from calibration. ``engine`` and ``record`` are as in
    ``run``; where ranks drift so far apart that two syncs overlap, it is simulated on the simpy engine in any case.
    Under ``trouble`` it may never end: see ``Trace.is_complete``.

    Raises InputError where there are no phases; for DistributedDataParallel on other clusters than this machine and
    without a calibration of its overlap; and for trouble or an engine where the sync is ``ddp`` or NCCL's own, which
    are predicted as a whole.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> from collectives.training.workload import ComputePhases
    >>> sync, phases = find_algorithm("all_reduce/ring"), ComputePhases(0.01, 0.02, 0.001)
    >>> training = Training(sync, compute=phases)
    >>> round(train(training, simcomm.star(4, "10 Gbit/s", "5 us"), steps=1).elapsed, 6)
    0.084732
    """
    check_cluster(cluster, Cluster)
    check_training(training, steps)
    options, model = SimulationOptions(engine, trouble, Record.of(record)), time_model(cluster, calibration)
    model.check_training(training, options)
    if calibration is None and (training.compute is None or training.gradient_sync is None):
        model = replace(model, calibration=cached_calibration(cluster.calibration_ranks))
    together, alone = model.phases(training)
    found = model.training_steps(training, together, model.steps if steps is None else steps, options)
    facts = {"batch_size": float(training.batch_size), "single_rank_step_s": alone.total}
    facts["warmup_steps"] = float(model.warm_up if steps is None else 0)
    return replace(found, title=f"training/{training.sync_name}", facts=found.facts | facts)
