"""Simulate a collective or a training run on a cluster, like ``realcomm.run`` and ``realcomm.train``."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from collectives.call import Array, CollectiveCall, make_call
from collectives.checks import check_cluster
from collectives.declaration import Algorithm
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training, check_training
from simcomm.cluster.calibrated import check_used
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS, Faults
from simcomm.performance_models.options import SimulationOptions
from simcomm.performance_models.performance_model import PerformanceModel, performance_model


def run(
    algorithm: str | Algorithm | CollectiveCall,
    cluster: Cluster,
    nbytes: int | str | None = None,
    *,
    dtype: str | None = None,
    op: str | None = None,
    root: int | None = None,
    buffers: Sequence[Array] | None = None,
    calibration: Calibration | None = None,
    faults: Faults = NO_FAULTS,
    engine: str | None = None,
    record: bool = True,
) -> Trace:
    """Simulate one collective, on ``nbytes`` bytes per rank or on the data in ``buffers``, which is updated in place.

    ``nbytes`` may be text such as "1 MiB". Defaults: float32 elements, operator sum, root 0. If ``algorithm`` is a
    CollectiveCall, it already contains size, dtype, operator and root. ``buffers`` has one 1-D array per rank, of equal
    length and type, each with its own memory. If the transport needs a calibration, the default is the cached one.

    ``engine`` is "simpy" or "compiled"; only "simpy" supports ``buffers``. The default depends on the number of
    messages. For ``this_machine``, calibrated message times are used unless you set an engine or faults. With
    ``record=False``, the trace has times only, which takes far less memory. Under ``faults``, a run may never end: see
    ``Trace.is_complete``.

    Raise InputError for invalid arguments, and ProgramError for an invalid algorithm.

    >>> import simcomm
    >>> trace = run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), nbytes=1 << 20)
    >>> len(trace.messages), round(trace.elapsed * 1e3, 6)  # in ms
    (24, 1.318291)
    """
    check_cluster(cluster, Cluster)
    check_used(calibration, [cluster])
    call = make_call(algorithm, cluster.world_size, nbytes, dtype=dtype, op=op, root=root, buffers=buffers)
    options = SimulationOptions(engine, faults, record)
    return performance_model(cluster, calibration).collective(call, options, buffers)


def simulate(
    model: PerformanceModel,
    workload: CollectiveCall | Training,
    *,
    steps: int | None = None,
    engine: str | None = None,
    record: bool = True,
    faults: Faults = NO_FAULTS,
) -> Trace:
    """Simulate a collective or a training run with a given performance model. ``run`` documents the options."""
    options = SimulationOptions(engine, faults, record)
    if isinstance(workload, CollectiveCall):
        return model.collective(workload, options)
    model.check_training(workload, options)
    if model.calibration is None and (workload.compute is None or workload.gradient_sync is None):
        model = replace(model, calibration=cached_calibration(model.cluster.calibration_ranks))
    together, alone = model.phases(workload)
    count = model.steps if steps is None else steps
    trace = split_loading(model.training_steps(workload, join_loading(together), count, options), workload, together)
    facts = {"batch_size": float(workload.batch_size), "single_rank_step_s": alone.total}
    facts["warmup_steps"] = float(model.warm_up if steps is None else 0)
    return replace(trace, title=f"training/{workload.sync_name}", facts=trace.facts | facts)


def train(
    training: Training,
    cluster: Cluster,
    *,
    steps: int | None = None,
    calibration: Calibration | None = None,
    engine: str | None = None,
    record: bool = True,
    faults: Faults = NO_FAULTS,
) -> Trace:
    """Simulate ``steps`` training steps. Default: the few steps that represent a whole training run.

    Compute times come from the training or from a calibration. ``engine`` and ``record`` are as in ``run``. If ranks
    drift so far apart that two syncs overlap, the simpy engine is used. Under ``faults``, a run may never end: see
    ``Trace.is_complete``.

    Raise InputError if compute times are missing, if DistributedDataParallel has no calibrated overlap on this cluster,
    or if faults or an engine are combined with ``ddp`` or NCCL's own sync, which are predicted by formula.

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
    check_used(calibration, [cluster], training)
    model = performance_model(cluster, calibration)
    return simulate(model, training, steps=steps, engine=engine, record=record, faults=faults)


def join_loading(phases: ComputePhases) -> ComputePhases:
    """Return the phases with data loading merged into forward, which does not change the times of messages."""
    return replace(phases, forward=phases.loading + phases.forward, loading=0.0)


def split_loading(trace: Trace, training: Training, phases: ComputePhases) -> Trace:
    """Return a trace in which data loading and forward are separate spans, as they were before ``join_loading``.

    On a slow rank, loading and forward are slowed down by the same factor. If gradients overlap with backward, loading
    keeps its time, because the extra time of forward is DistributedDataParallel's broadcast of buffers.
    """
    if not phases.loading:
        return trace
    spans = trace.spans
    is_forward = spans.named("forward")
    forward, others = spans.select(is_forward), spans.select(~is_forward)
    whole_s = forward.end - forward.begin
    slowed = 1.0 if training.overlaps else whole_s / (phases.loading + phases.forward)
    loaded = forward.begin + phases.loading * slowed
    loading = Spans(("loading",), **(forward.kept | {"end": loaded, "name": np.zeros(len(forward), np.int64)}))
    computed = Spans(forward.names, **(forward.kept | {"begin": loaded}))
    return replace(trace, spans=Spans.join([loading, computed, others]).sorted())
