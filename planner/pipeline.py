"""Divide models into pipeline stages, order the microbatches of each stage, and compute the time of a step.

GPipe: Huang et al. (https://arxiv.org/abs/1811.06965). 1F1B and interleaved: Narayanan et al.
(https://arxiv.org/abs/2104.04473), section 2.2.
"""

from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Block, ModelProfile
from planner.hosts import Array


class Pass(NamedTuple):
    """The forward or backward pass of one microbatch through a stage. Stage ``k`` is on device ``k % devices``."""

    is_backward: bool
    stage: int
    microbatch: int

    def needs(self, stages: int) -> "Pass | None":
        """Return the pass that must end before this one starts, or None for a forward pass of the first stage."""
        if not self.is_backward:
            return self._replace(stage=self.stage - 1) if self.stage else None
        is_last = self.stage + 1 == stages
        return Pass(False, self.stage, self.microbatch) if is_last else self._replace(stage=self.stage + 1)


def order_of(schedule: str, device: int, devices: int, microbatches: int, virtual: int = 1) -> list[Pass]:
    """Return the passes of a device in execution order.

    Raise InputError for an interleaved schedule if the number of microbatches is not a multiple of ``devices``.
    """
    if schedule == "interleaved" and microbatches % devices:
        raise InputError(f"interleaved: microbatches must be a multiple of the {devices} stages, not {microbatches}")
    ahead = {"1f1b": devices - device - 1, "interleaved": 2 * (devices - device - 1) + (virtual - 1) * devices}
    width = devices if schedule == "interleaved" else microbatches  # microbatches of a stage, one after the other
    places = [
        (chunk, first + number)
        for first in range(0, microbatches, width)
        for chunk in range(virtual)
        for number in range(width)
    ]
    forward = [Pass(False, chunk * devices + device, microbatch) for chunk, microbatch in places]
    backward = [Pass(True, (virtual - 1 - chunk) * devices + device, microbatch) for chunk, microbatch in places]
    early = min(ahead.get(schedule, microbatches), len(forward))
    pairs = zip(forward[early:], backward, strict=False)
    return [*forward[:early], *(work for pair in pairs for work in pair), *backward[len(forward) - early :]]


@lru_cache(maxsize=256)
def list_passes(
    schedule: str, devices: int, microbatches: int, virtual: int = 1
) -> tuple[tuple[Pass, Pass | None], ...]:
    """Return the passes of all devices in a valid order, each with the pass that it waits for or None."""
    left = [order_of(schedule, device, devices, microbatches, virtual)[::-1] for device in range(devices)]
    done, stages = dict[Pass | None, Pass | None]({None: None}), devices * virtual
    while any(left):
        for passes in left:
            while passes and (needed := passes[-1].needs(stages)) in done:
                done[passes.pop()] = needed
    return tuple((work, needed) for work, needed in done.items() if work is not None)


def pipeline_seconds(
    schedule: str, forward: Array, backward: Array, send: Array, devices: int, microbatches: int
) -> Array:
    """Return the step time in seconds of each training run in a pipeline.

    ``forward`` and ``backward`` have a row per training run and a column per stage. ``send`` has the seconds of the
    message after each stage. A device sends messages in the same direction one after another.
    """
    stages, free = forward.shape[1], np.zeros((len(forward), devices))
    ready, sending = dict[Pass | None, Array]({None: np.zeros(len(forward))}), dict[tuple[int, bool], Array]()
    for work, needed in list_passes(schedule, devices, microbatches, stages // devices):
        device, seconds = work.stage % devices, backward if work.is_backward else forward
        end = np.maximum(free[:, device], ready[needed]) + seconds[:, work.stage]
        free[:, device] = ready[work] = end
        if 0 <= (behind := work.stage - work.is_backward) < stages - 1:
            way = (device, work.is_backward)
            sending[way] = ready[work] = np.maximum(end, sending.get(way, 0.0)) + send[:, behind]
    return np.asarray(free.max(axis=1))


@cache
def deal_layers(framework: str, layers: int, pp: int, layer: int, words: int) -> tuple[int, int, int]:
    """Return the number of layers of the fullest, the first and the last of ``pp`` stages.

    ``layer`` and ``words`` are the parameter counts of a layer and of the token embedding.

    nanotron starts a new stage once the layers so far have more than their even share of all parameters. Other
    frameworks distribute the layers evenly, and the first stages get the extra layers. There are two exceptions if
    ``pp`` does not divide ``layers``. If ``pp`` divides ``layers + 2``, Megatron counts the token embedding and the LM
    head as a layer each. Otherwise, Megatron-DeepSpeed puts ceil(layers / pp) layers in each stage until none are left.
    """
    if pp == 1:
        return layers, layers, layers
    if framework == "nanotron":
        total, counts, stage = layers * layer + words, [0] * pp, 0
        for number in range(1, layers + 1):
            counts[stage] += 1
            if number * layer * pp > total * (stage + 1) and stage < pp - 1:
                stage += 1
    elif framework.startswith("megatron") and layers % pp and (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        counts = [each - 1, *[each] * (pp - 2), each - 1]
    elif framework == "megatron-deepspeed" and layers % pp:
        each = -(-layers // pp)
        counts = [min(each, max(0, layers - each * k)) for k in range(pp)]
    else:
        counts = [layers // pp + (k < layers % pp) for k in range(pp)]
    return max(counts), counts[0], counts[-1]


def cut_stages(profile: ModelProfile, stages: int) -> list[tuple[Block, ...]]:
    """Return the blocks of each stage. Dynamic programming minimizes the work of the largest stage.

    Raise InputError if there are more stages than blocks with parameters.
    """
    blocks = profile.blocks
    most = sum(block.parameters > 0 for block in blocks)
    if stages > most:
        raise InputError(
            f"{quote(profile.model)} can be split into at most {most} stages, not {stages}; use fewer "
            "stages (pipeline x virtual)"
        )
    work = [float(block.forward_flops + block.backward_flops) or 1.0 for block in blocks]
    until = np.array([0.0, *accumulate(work)])
    places = np.arange(len(until))
    last = np.where(places[:, None] < places, until - until[:, None], np.inf)  # of a part from a cut to an end
    best, chosen, cuts = last[0], list[Array](), [len(work)]
    for _ in range(stages - 1):
        greatest = np.maximum(best[:, None], last)
        best = greatest.min(axis=0)
        chosen.append(len(work) - greatest[::-1].argmin(axis=0))  # the latest of equally good cuts
    for previous in reversed(chosen):
        cuts.append(int(previous[cuts[-1]]))
    return [tuple(blocks[begin:end]) for begin, end in pairwise([0, *reversed(cuts)])]
