"""The training step as a timeline in virtual time: forward, backward, gradient sync, optimizer."""

from dataclasses import replace
from functools import partial
from itertools import accumulate

from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster
from collectives.declaration import GLOO, Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.environment import cores, threads_per_rank
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace
from collectives.records.waits import Recording
from collectives.request import Request
from collectives.schedule.schedule import Schedule
from collectives.transport import Transport
from collectives.workload import ComputePhases, Training, check_training
from simcomm.cluster.calibrated import (
    calibration_ranks,
    check_calibration,
    hop_calibration,
    resolve_transport,
    with_calibration,
)
from simcomm.cluster.cluster import Cluster
from simcomm.engine_choice import choose_engine
from simcomm.hop_training import measured_ranks, shared_cores, train_by_hops, train_overlapped
from simcomm.model.trouble import (
    BACKWARD,
    DIVISION,
    FORWARD,
    NO_TROUBLE,
    OPTIMIZER,
    Trouble,
    check_tcp_trouble,
    check_trouble,
)
from simcomm.reference.computing import SharedCores
from simcomm.reference.engine import Buffer, Process, Simulation, Site
from simcomm.reference.tcp_engine import make_simulation
from simcomm.reference.traces import make_trace
from simcomm.schedules import compact_schedule, verified_schedule
from simcomm.simulate import run
from simcomm.size_limits import check_simpy

STEPS = 3  # of a training: all are alike
EMULATED_STEPS = 5  # of ranks that share cores: each goes on when it is through, so that steps differ
EMULATED_WARM_UP = 1  # steps that do not count: in the first one all ranks begin at once


def train(
    training: Training,
    cluster: Cluster,
    *,
    steps: int | None = None,
    calibration: Calibration | None = None,
    engine: str | None = None,
    record: Recording = True,
    trouble: Trouble = NO_TROUBLE,
) -> Trace:
    """Simulate ``steps`` training steps, unless said ``usual_steps``.

    Compute phases come from the training's own numbers or from calibration. ``engine`` and ``record`` are as in
    ``run``; where ranks drift so far apart that two syncs overlap, it is simulated on the simpy engine in any case.
    Under ``trouble`` it may never end: see ``Trace.is_complete``.

    Raises InputError where there are no phases; for DistributedDataParallel on other clusters than this machine and
    without a calibration of its overlap; and for trouble or an engine where the sync is ``ddp`` or NCCL's own, which
    are predicted as a whole.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> sync, phases = find_algorithm("all_reduce/ring"), ComputePhases(0.01, 0.02, 0.001)
    >>> training = Training(sync, compute=phases)
    >>> round(train(training, simcomm.star(4, "10 Gbit/s", "5 us"), steps=1).elapsed, 6)
    0.084732
    """
    check_cluster(cluster, Cluster)
    check_training(training, steps)
    check_calibration(calibration)
    check_sync(training, cluster, engine, trouble)
    if calibration is None and (training.compute is None or training.gradient_sync is None):
        calibration = cached_calibration(calibration_ranks(cluster))
    together, alone = phases(training, cluster, calibration)
    warm_up = EMULATED_WARM_UP if steps is None and cluster.is_emulated else 0
    steps = usual_steps(cluster) if steps is None else steps
    found = _find_steps(training, cluster, calibration, together, steps, engine=engine, record=record, trouble=trouble)
    facts = {"batch_size": float(training.batch_size), "single_rank_step_s": alone.total}
    facts["warmup_steps"] = float(warm_up)
    return replace(found, title=f"training/{training.sync_name}", facts=found.facts | facts)


def usual_steps(cluster: Cluster) -> int:
    """Return how many steps of a training show what all of them take: three that are alike, of emulated ranks five."""
    return EMULATED_STEPS if cluster.is_emulated else STEPS


def check_sync(training: Training, cluster: Cluster, engine: str | None, trouble: Trouble) -> None:
    """Raise InputError for a sync without messages where these are asked for, and for ``ddp`` but on this machine."""
    sync = training.gradient_sync
    if sync is not None and not sync.is_nccl and training.buckets is None:
        return
    if sync is None and not cluster.is_here and not cluster.is_emulated:
        raise InputError(
            "gradient_sync 'ddp' is predicted for ranks of this machine only, whose overlap was measured, and on "
            "emulated clusters"
        )
    whole = f"gradient_sync {training.sync_name!r} is predicted as a whole, without messages that"
    if trouble != NO_TROUBLE:
        raise InputError(f"{whole} trouble could meet; leave the trouble out, or take a sync of messages, such as ring")
    if engine is not None:
        raise InputError(
            f"{whole} engine {quote(engine)} could simulate; leave the engine out, or take a sync of messages, such "
            "as ring"
        )


def _find_steps(
    training: Training,
    cluster: Cluster,
    calibration: Calibration | None,
    compute: ComputePhases,
    steps: int,
    *,
    engine: str | None,
    record: Recording,
    trouble: Trouble,
) -> Trace:
    """Return the steps by the most that is known of them: as a whole, from measured hops, or of their messages."""
    if training.gradient_sync is None:
        assert calibration is not None
        carry = None if cluster.is_here else partial(_reduced_by_gloo, cluster, calibration)
        return train_overlapped(training, cluster, calibration, compute, steps, carry)
    if training.buckets is not None:
        carry = partial(_reduced_by, training.gradient_sync, cluster, calibration)
        return train_overlapped(training, cluster, calibration, compute, steps, carry)
    if training.gradient_sync.is_nccl:
        return _with_nccl(training, cluster, compute, steps)
    if engine is None and trouble == NO_TROUBLE and calibration is not None:
        measured = hop_calibration(cluster, calibration)
        if measured is not None:
            return train_by_hops(training, with_calibration(cluster, measured), measured, compute, steps)
    cluster, transport = resolve_transport(cluster, calibration)
    check_trouble(trouble, cluster.graph, cluster.world_size)
    if transport.tcp is not None:
        check_tcp_trouble(trouble)
    cores = shared_cores(training, cluster, calibration) if transport.tcp is not None else None
    if cores is not None:  # only the reference engine knows them
        if engine not in (None, "simpy"):
            raise InputError(
                f"engine {quote(engine)} knows nothing of cores that ranks share, and the calibration is of fewer "
                "ranks than this machine would run at once; leave the engine out, or take simpy"
            )
        compute = compute.times(cores / cluster.world_size)  # of a rank that does not wait for a core
    elif engine == "simpy":
        check_simpy(training.gradient_sync, cluster.world_size, steps=steps)
    elif choose_engine(engine, training.gradient_sync, cluster.world_size, 0, trouble) != "simpy":
        found = _on_compiled(training, cluster, transport, compute, steps, record=record, trouble=trouble)
        if found is not None:
            return found
    return _on_reference(training, cluster, transport, compute, steps, trouble, cores)


def _reduced_by(algorithm: Algorithm, cluster: Cluster, calibration: Calibration | None, nbytes: int) -> float:
    """Return the seconds in which an algorithm averages so many bytes on a cluster."""
    if algorithm.is_nccl:
        return _reduced_by_nccl(cluster, nbytes)
    request = Request(algorithm, nbytes // 4, op="mean")
    return run(request, cluster, calibration=calibration, record=False).elapsed


def _reduced_by_gloo(cluster: Cluster, calibration: Calibration, nbytes: int) -> float:
    """Return the seconds of gloo's own all_reduce of so many bytes on a cluster."""
    gloo = find_algorithm(f"all_reduce/{GLOO}")
    return run(Request(gloo, nbytes // 4), cluster, calibration=calibration, record=False).elapsed


def _reduced_by_nccl(cluster: Cluster, nbytes: int) -> float:
    """Return the seconds of NCCL's own all_reduce. Raise InputError for a cluster that NCCL does not join."""
    from simcomm.nccl.clusters import NcclCluster  # trainings over other transports do without it
    from simcomm.nccl.predict import predict_seconds

    if not isinstance(cluster, NcclCluster):
        raise InputError(f"gradient_sync 'nccl' needs a cluster that NCCL joins, and {cluster.title} is none")
    return float(predict_seconds(cluster.system, "all_reduce", [nbytes], settings=cluster.settings)[0])


def _with_nccl(training: Training, cluster: Cluster, compute: ComputePhases, steps: int) -> Trace:
    """Return steps whose sync is NCCL's own all_reduce. Raise InputError for a cluster that NCCL does not join."""
    sync = _reduced_by_nccl(cluster, training.gradient_bytes)
    lengths = {"forward": compute.forward, "backward": compute.backward, "sync": sync, "optimizer": compute.optimizer}
    ends = list(accumulate(list(lengths.values()) * steps))
    phases = zip(list(lengths) * steps, [0.0, *ends], ends, strict=False)
    spans = Spans.of_all_ranks(
        cluster.world_size,
        ((name, number // len(lengths), begin, end) for number, (name, begin, end) in enumerate(phases)),
    )
    hosts = list(cluster.hosts)
    return Trace(
        f"training/{training.sync_name}",
        "predicted",
        cluster.world_size,
        ends[-1],
        spans=spans,
        nodes=hosts,
        hosts=hosts,
    )


def _on_compiled(
    training: Training,
    cluster: Cluster,
    transport: Transport,
    compute: ComputePhases,
    steps: int,
    *,
    record: Recording,
    trouble: Trouble,
) -> Trace | None:
    """Simulate a sync at a time on the compiled engine; None where two overlap, a link changes or a rank fails."""
    from simcomm.compiled.planning.engine_input import EngineInput, as_repeated  # few messages do without it
    from simcomm.compiled.training import simulate_training

    assert training.gradient_sync is not None
    program = compact_schedule(training.gradient_sync, cluster.world_size, 0)
    request = Request(training.gradient_sync, training.gradient_bytes // 4)
    inputs = as_repeated(EngineInput(request, program, cluster, transport, trouble))
    return simulate_training(inputs, compute, steps, record=record)


def _on_reference(
    training: Training,
    cluster: Cluster,
    transport: Transport,
    compute: ComputePhases,
    steps: int,
    trouble: Trouble,
    cores: int | None,
) -> Trace:
    """Simulate all steps in one run of the reference engine; ranks compute on ``cores`` that they share, if any."""
    assert training.gradient_sync is not None
    schedule = verified_schedule(training.gradient_sync, cluster.world_size)
    request = Request(training.gradient_sync, training.gradient_bytes // 4)
    simulation = make_simulation(request, cluster, transport, trouble)
    if cores is not None:
        simulation.shared_cores = SharedCores(simulation.env, cores)
    elapsed = simulation.run(
        _rank(simulation, rank, schedule, compute, training.gradient_bytes, steps) for rank in range(cluster.world_size)
    )
    return make_trace(simulation, schedule, elapsed, {})


def phases(
    training: Training, cluster: Cluster, calibration: Calibration | None
) -> tuple[ComputePhases, ComputePhases]:
    """Return the phases of a step beside the other ranks of its machine, and of one rank alone with as many threads.

    Raises InputError where the calibration has none.
    """
    if training.compute is not None:
        return training.compute, training.compute
    assert calibration is not None
    local, measured = cluster.local_ranks, measured_ranks(training, cluster, calibration)
    threads = threads_per_rank(local)
    together, alone = calibration.phases(training, measured, threads), calibration.phases(training, 1, threads)
    if together is None or alone is None:
        raise InputError(
            f"the calibration has no times of {training.model}, {training.dataset}, batch size {training.batch_size}, "
            f"for {local} ranks of {threads} threads each on {cores()} cores; make them with "
            "`ringlab calibrate SCENARIO`, or give them as [training.compute]"
        )
    return together.times(local / measured), alone


def _rank(
    simulation: Simulation, rank: int, schedule: Schedule, compute: ComputePhases, nbytes: int, steps: int
) -> Process:
    """Carry out one rank's training steps: forward, backward, all-reduce of the gradients, mean, optimizer."""
    buffer = Buffer(schedule.algorithm, schedule.world_size, nbytes // 4, 4, None)
    scaling = simulation.transport.gamma * nbytes  # the mean divides the sum
    for step in range(steps):
        yield from simulation.compute("forward", Site(step, rank, FORWARD, step), compute.forward)
        yield from simulation.compute("backward", Site(step, rank, BACKWARD, step), compute.backward)
        begin = simulation.env.now
        yield from simulation.collective(rank, schedule.programs[rank], buffer, "mean", step)
        yield from simulation.compute("reduce", Site(step, rank, DIVISION, step), scaling)
        simulation.spans.append(Span(rank, "sync", step, begin, simulation.env.now, collective=step))
        yield from simulation.compute("optimizer", Site(step, rank, OPTIMIZER, step), compute.optimizer)
