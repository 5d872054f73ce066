"""The training step as seconds: what computes, what travels, what waits, for many cases at once.

A GPU alone takes t1 a step. On N GPUs a step takes

    t1 (1 + jitter g(N)) + copies + processes + communication that backward does not hide
        + what the rest takes from backward

where g(N) is the mean of the greatest of N draws of a normal distribution, as all wait for the slowest.
``processes`` share a node's cores: with n GPUs on it, a step waits for the work of n - 1 others. The buckets of
DistributedDataParallel travel one after the other, each when it is full, as in ``simcomm.overlap``. While K seconds of
them travelled, backward lost steal x K; so bucket b, full at the share ready[b] of a backward of T seconds, ends no
earlier than ready[b] T + steal K[b] + c[b], and behind it all that follow:

    end = max over b (ready[b] T + steal K[b] + sum of c from b on),  K[b] = sum of c before b

which is ``overlap(...).finished`` for every steal up to 1 (tests/test_scaling_step.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from simcomm.scaling.cases import LINK_KINDS, LOADERS, SYNCS, Cases, Floats
from simcomm.scaling.intervals import Shares

BACKWARD_SHARE = 2 / 3  # of a step's computing: twice the FLOPs of forward
USUAL_STEP = 0.2  # s
FULL_NIC = 12.5e9  # bytes/s of a NIC from which on communication takes as much from backward as it can
DDP, AFTER, PS, NONE = range(len(SYNCS))
NVLINK, PCIE, HOST, NETWORK = range(len(LINK_KINDS))
PARTS = ("compute", "jitter", "copies", "processes", "exposed", "steal", "contention", "input")


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step by what they go to; arrays of one length. ``input``: what loaders add.

    ``processes`` is what those of a node's other GPUs add, ``contention`` what batches do that are copied over the
    links of the exchange.
    """

    compute: Floats
    jitter: Floats
    copies: Floats
    processes: Floats
    exposed: Floats
    steal: Floats
    contention: Floats
    input: Floats

    @property
    def total(self) -> Floats:
        """Seconds of a step."""
        found: Floats = np.sum([getattr(self, part.name) for part in fields(self)], axis=0)
        return found

    def shares(self, cases: Cases, values: Mapping[str, float]) -> Shares:
        """Return what the steps of cases rest on."""
        total = self.total
        waiting = self.jitter / total
        return Shares(
            (self.exposed + self.steal + self.copies + self.contention) / total,
            np.where(cases.variable, 0.0, waiting),
            1 - (1 - self.input / total) ** values["input_power"],
            np.where(cases.variable, waiting, 0.0),
            np.where(cases.nodes > 1, 1.0, 0.0),
        )


def step_times(cases: Cases, values: Mapping[str, float], alone: Floats) -> StepTimes:
    """Return the seconds of a step, by those that it takes one GPU alone."""
    several = (cases.gpus > 1) & (cases.sync != NONE)
    exchanged = (np.where(several, part, 0.0) for part in _communication(cases, values, alone))
    exposed, steal, contention = exchanged
    passes = cases.gradient_bytes * values["copy_passes"] / cases.memory
    copies = np.where(several, passes, 0.0)
    processes = np.where(several, process_seconds(values, cases.gpus / cases.nodes, cases.cores), 0.0)
    spread = np.where(cases.variable, values["jitter_variable"], values["jitter"])
    # What differs from step to step averages out in a long one.
    steps = (USUAL_STEP / np.maximum(USUAL_STEP, alone)) ** 0.5
    jitter = alone * (spread * cases.slowest + values["jitter_nodes"] * steps * cases.slowest_node)
    on_gpus = alone + jitter + copies + processes + exposed + steal + contention
    loading = _loading(cases, values)
    total = (on_gpus ** values["input_power"] + loading ** values["input_power"]) ** (1 / values["input_power"])
    return StepTimes(
        compute=alone,
        jitter=jitter,
        copies=copies,
        processes=processes,
        exposed=exposed,
        steal=steal,
        contention=contention,
        input=np.maximum(total - on_gpus, 0.0),
    )


def process_seconds(values: Mapping[str, float], gpus: Floats | float, cores: Floats | float) -> Floats | float:
    """Return how long a step waits for the processes of a node's other GPUs, which share its cores."""
    return values["process_ms"] / 1e3 * (gpus - 1) / cores


def _communication(cases: Cases, values: Mapping[str, float], alone: Floats) -> tuple[Floats, Floats, Floats]:
    """Return seconds that communication adds after backward, those that it takes from backward, and contention's."""
    backward = BACKWARD_SHARE * alone
    each_byte, each_bucket = _message_seconds(cases, values)
    whole = cases.gradient_bytes * each_byte + cases.count * each_bucket
    steal = steal_of(cases, values)
    before = cases.before * each_byte[:, None] + np.arange(cases.buckets.shape[1]) * each_bucket[:, None]
    ends = cases.ready * backward[:, None] - (1 - steal)[:, None] * before
    end = np.where(cases.buckets > 0, ends, -np.inf).max(axis=1) + whole
    overlapped = cases.sync == DDP
    first = alone - backward + np.where(overlapped, cases.ready[:, 0], 1.0) * backward
    delay = copy_delay(cases, first, whole)
    # the first bucket is late by it, and what follows as far as it had not waited for backward
    later = np.maximum(end, ends[:, 0] + whole + delay) - np.maximum(end, backward + steal * whole)
    later = np.where(overlapped, np.maximum(later, 0.0), np.where(cases.sync == AFTER, delay, 0.0))
    exposed = np.clip((end - backward - steal * whole) / (1 - steal), 0.0, whole)
    taken = steal * (whole - exposed)
    served = server_seconds(
        values, cases.gradient_bytes, cases.largest, cases.gpus, cases.nodes, staged=cases.staged, busbw=cases.busbw,
        paths=cases.ps_paths, nic=cases.nic,
    )  # fmt: skip
    after = np.where(cases.sync == PS, served, whole)
    return np.where(overlapped, exposed, after), np.where(overlapped, taken, 0.0), later


def copy_delay(cases: Cases, first: Floats, whole: Floats) -> Floats:
    """Return what the next batch's copies delay an exchange that begins at ``first`` and takes ``whole`` alone.

    The copies begin with the step, and share links with the exchange until one of the two is through: for one exchange
    the closed form of ``simcomm/parallelism/shared_links.py``.
    """
    left = np.maximum(copy_seconds(cases) - first, 0.0)
    beside = np.minimum(left / cases.copy_pace, whole / cases.exchange_pace)
    delay: Floats = beside * (1 - cases.exchange_pace)
    return delay


def copy_seconds(cases: Cases) -> Floats:
    """Return what copying a batch to each GPU of a node takes."""
    seconds: Floats = cases.batch * cases.copied / cases.copy_rate
    return seconds


def steal_of(cases: Cases, values: Mapping[str, float]) -> Floats:
    """Return what a second of communication takes from a backward beside it; over a slow network in proportion.

    What competes for memory are the bytes that pass, so a NIC of 3 GB/s disturbs a quarter as much as one of 12.5 GB/s,
    which fills a PCIe 3.0 slot.
    """
    found = np.array([values[f"steal_{kind}"] for kind in LINK_KINDS])[cases.kind]
    slow = np.minimum(1.0, cases.nic / FULL_NIC)
    return np.where(cases.kind == NETWORK, found * slow, found)


def _message_seconds(cases: Cases, values: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the seconds of an all-reduce for each byte, by a ring's bytes at the bus bandwidth, and for each call."""
    slowest = np.where(cases.nodes > 1, np.minimum(cases.busbw, cases.nic), cases.busbw)
    slowest = np.where((cases.gpus == cases.nodes) & (cases.nodes > 1), cases.nic, slowest)
    slowest = slowest * np.array([values[f"eff_{kind}"] for kind in LINK_KINDS])[cases.kind]
    return 2 * (cases.gpus - 1) / cases.gpus / slowest, values["latency_us"] / 1e6 * np.log2(cases.gpus)


def bucket_seconds(cases: Cases, values: Mapping[str, float]) -> Floats:
    """Return the seconds of an all-reduce of each bucket, were it alone."""
    each_byte, each_bucket = _message_seconds(cases, values)
    return np.where(cases.buckets > 0, cases.buckets * each_byte[:, None] + each_bucket[:, None], 0.0)


def server_seconds(
    values: Mapping[str, float],
    nbytes: Floats | float,
    largest: Floats | float,
    gpus: Floats | float,
    nodes: Floats | float,
    *,
    staged: NDArray[np.bool_] | bool,
    busbw: Floats | float,
    paths: Floats | float,
    nic: Floats | float,
) -> Floats:
    """Return what fetching ``nbytes`` of weights and sending as many of gradients takes with a parameter server.

    GPUs that reach each other hold an equal share of the variables each, so that all links work at once. Where all is
    ``staged`` it goes through the host's memory, over so many ``paths``, and what belongs to the ``largest`` layer from
    one GPU. Bandwidths are bytes/s.
    """
    there = 2 * nbytes * (gpus - 1)
    spread = there / gpus / (values["ps_eff"] * busbw)
    of_one = 2 * largest * (gpus - 1) / (values["ps_one_GBps"] * 1e9)
    through_host = np.maximum(there / (values["ps_GBps"] * 1e9 * paths), of_one)
    inside = np.where(staged, through_host, spread)
    between = np.where(nodes > 1, 2 * nbytes * (nodes - 1) / nodes / nic, 0.0)
    found: Floats = np.where(gpus == nodes, 0.0, inside) + between
    return found


def _loading(cases: Cases, values: Mapping[str, float]) -> Floats:
    """Return the seconds in which a node's cores make the batches of its GPUs, or its PCIe links bring them there."""
    images = cases.batch * cases.gpus / cases.nodes
    rates = {"dali": values["dali_per_core"], "decode": values["decode_per_core"]}
    rate = np.array([rates.get(loader, np.inf) for loader in LOADERS])[cases.loader]
    seconds: Floats = np.maximum(images / (cases.cores * rate), copy_seconds(cases))
    return seconds


def solve_alone(cases: Cases, values: Mapping[str, float], measured: Floats, *, tries: int = 40) -> Floats:
    """Return the seconds of a step on one GPU with which so many GPUs take ``measured`` seconds."""
    alone = measured.copy()
    for _ in range(tries):
        total = step_times(cases, values, alone).total
        if np.allclose(total, measured, rtol=1e-9):
            break
        alone = np.maximum(alone + (measured - total), alone * np.minimum(1.0, measured / total) * 0.5)
    return alone
