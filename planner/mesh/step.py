"""A training step on a mesh of devices: what the streams of each device do, and the seconds that these add up to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.checks import check_number
from collectives.errors import InputError, TooLarge
from collectives.records.model_profile import Block, ModelProfile
from collectives.training.gradients import Gradient, gradients_of
from collectives.training.parallelism import SHARDED, Parallelism
from planner.hosts import Group
from planner.mesh.calls import Call, join_calls
from planner.mesh.compute import BlockTimes, Compute
from planner.mesh.interconnect import Interconnect
from planner.mesh.job import ANY_DEVICE, MeshDevice, TrainingJob
from planner.mesh.language import LanguageModel, is_expressible
from planner.mesh.layers import (
    LayerCollectives,
    count_parameters,
    device_part,
    find_layer_collectives,
    is_unit,
    split_tensors,
    visits,
)
from planner.mesh.memory import WHOLE_STATES, check_fit, check_strategy
from planner.mesh.pipeline import StageTimes, pipeline_program
from planner.mesh.prediction import Spans, StepParts, StepPrediction
from planner.mesh.sync import NO_ROOT, DataGroups, DeviceWork, SyncTimes, Unit, data_groups, sync_step
from planner.mesh.terms import (
    CORES,
    copy_seconds,
    expected_maximum,
    loading_added,
    network_slowdown,
    process_seconds,
    read_parameters,
    straggler_seconds,
)
from planner.stages import Stage, cut_stages


@dataclass(frozen=True)
class StepModel:
    """What predicts the steps of a job: how fast a device computes, and what joins so many devices."""

    job: TrainingJob
    compute: Compute
    join: Callable[[int], Interconnect]
    device: MeshDevice = ANY_DEVICE
    language: LanguageModel | None = None  # where closed forms are fitted to such trainings

    def predict(self, devices: int) -> StepPrediction:
        """Return a step on so many devices.

        Raises InputError for a mesh of another number, a strategy that the model cannot have, and a batch that does not
        fit into the devices' memory.
        """
        check_number("batch_size", self.job.batch, above=0)
        fabric = self.join(devices)
        job = self.job.on(devices, fabric.node)
        check_strategy(job)
        check_tasks(job.model, job.parallelism)
        if self.language is None:
            check_sharded(job.parallelism)
            return _Step(job, self.compute, fabric, devices, self.device).predict()
        stated = self.language.stated(devices, job.parallelism)
        found = _Step(job, self.compute, fabric, devices, self.device._replace(memory=None)).predict()
        step = self.language.of_mesh(stated, 0)
        found = replace(found, memory=(step.memory,), chance_to_run=step.chance)
        if not is_expressible(job):
            return found
        return replace(found, parts=StepParts(**step.parts), alone=step.alone, deviations=step.deviations)


def check_tasks(profile: ModelProfile, parallelism: Parallelism) -> None:
    """Raise TooLarge for a step of more tasks than are simulated."""
    tasks = (
        4
        * parallelism.pieces
        * (parallelism.pipeline * parallelism.virtual if parallelism.pipeline > 1 else len(profile.blocks))
    )
    most = allowed(Gigabyte.TASKS)
    if parallelism.pieces > 1 and tasks > most:
        raise TooLarge(
            f"{parallelism.pieces} microbatches are about {tasks:,} tasks, more than {most:,}; use fewer of them, or "
            f"{more_memory(tasks / most)}"
        )


def check_sharded(parallelism: Parallelism) -> None:
    """Raise InputError for a pipeline whose stages gather parameters: closed forms alone know what that takes."""
    if parallelism.strategy in SHARDED and parallelism.pipeline > 1:
        raise InputError(
            f"strategy {parallelism.strategy} gathers parameters for each microbatch, and no pipeline "
            f"({parallelism.pipeline} stages) is "
            "predicted with it but of language models on described GPUs; take zero1, or pipeline = 1"
        )


class _StageWork(NamedTuple):
    """A stage of a pipeline: its blocks, where they are in the model, and what it sends in a step, on and back."""

    stage: Stage
    blocks: slice
    times: StageTimes
    sends: tuple[Call, ...]


class _Timeline(NamedTuple):
    """A step of devices that are all alike, but for their stages: what the streams of a device do."""

    compute: float  # of the device with most to do, collectives within its layers apart
    inside: float  # these
    waited: float  # for other stages
    sync: SyncTimes
    overlap_slowdown: float
    calls: tuple[tuple[Call, ...], ...]
    spans: Spans


@dataclass(frozen=True)
class _Step:
    """A step on one mesh."""

    job: TrainingJob
    whole: Compute  # of the dense model on one device
    fabric: Interconnect
    devices: int
    device: MeshDevice

    @property
    def parallelism(self) -> Parallelism:
        return self.job.parallelism

    @cached_property
    def profile(self) -> ModelProfile:
        """What a device has of the model: its part of divided matrices, and its own experts."""
        return device_part(self.job.model, self.parallelism)

    @cached_property
    def compute(self) -> Compute:
        """How long a device takes for the whole model, of which a token visits some experts."""
        return self.whole.times(visits(self.job.model, self.parallelism))

    @cached_property
    def within(self) -> LayerCollectives:
        """What the layers exchange for a microbatch."""
        return find_layer_collectives(self.profile, self.parallelism, self.job.microbatch, self.job.item, self.fabric)

    @cached_property
    def groups(self) -> DataGroups:
        return data_groups(self.fabric, self.parallelism)

    @cached_property
    def times(self) -> BlockTimes:
        """What a device computes of each block for a microbatch; recomputing is part of backward."""
        found = self.compute.blocks(self.job.microbatch)
        parts, again = self.parallelism.tensor, self.parallelism.recompute == "full"
        forward = tuple(each / parts for each in found.forward)
        backward = tuple(
            each / parts + (ahead if again else 0.0) for each, ahead in zip(found.backward, forward, strict=True)
        )
        return BlockTimes(forward, backward)

    def predict(self) -> StepPrediction:
        kept = check_fit(self.job, self.device.memory, self.device.name)
        timeline = self._pipelined() if self.parallelism.pipeline > 1 else self._flat()
        return StepPrediction(
            job=self.job,
            devices=self.devices,
            parts=self._with_loading(self._less_often(self._parts(timeline))),
            memory=tuple(kept),
            calls=timeline.calls,
            alone=self.job.batch / self.compute.step(self.job.batch),
            spread=self.compute.spread,
            spans=timeline.spans,
            network=self.devices > self.fabric.node,
        )

    def _parts(self, timeline: _Timeline) -> StepParts:
        parallelism, counts, values = (
            self.parallelism,
            count_parameters(self.profile, self.parallelism),
            read_parameters(),
        )
        changed = (
            counts.whole if parallelism.strategy in WHOLE_STATES else counts.divided(parallelism)
        ) / parallelism.pipeline
        optimizer = self.compute.optimizer * changed / self.job.model.parameters
        copies = processes = stragglers = 0.0
        if self.device.memory_bandwidth and self.devices > 1:
            if parallelism.data > 1:
                exchanged = counts.shared + (counts.expert if parallelism.data > parallelism.expert else 0.0)
                passed = self._gradient_item * exchanged / parallelism.pipeline
                copies = float(copy_seconds(values, passed, self.device.memory_bandwidth))
            # also of ``data_parallel``: its one process launches for all GPUs, as TensorFlow's to which this is fitted
            cores = self.device.cores or CORES * self.fabric.node
            processes = float(process_seconds(values, min(self.fabric.node, self.devices), cores))
            slowest, hosts = expected_maximum(self.devices), -(-self.devices // self.fabric.node)
            computing = timeline.compute + optimizer
            stragglers = float(
                straggler_seconds(values, computing, slowest, expected_maximum(hosts), self.job.variable_batches)
            )
        share = self.within.tensor_share
        return StepParts(
            compute=timeline.compute,
            optimizer=optimizer,
            tensor=timeline.inside * share,
            expert=timeline.inside * (1 - share),
            pipeline=timeline.waited,
            sync=timeline.sync.exposed,
            overlap_slowdown=timeline.overlap_slowdown,
            copies=copies,
            stragglers=stragglers,
            processes=processes,
        )

    def _less_often(self, parts: StepParts) -> StepParts:
        """Return the mean step of local SGD, which averages after some steps only."""
        rare = ["sync", "overlap_slowdown", "copies"]
        if self.parallelism.data == self.devices:  # others exchange within layers, or between stages, in every step
            rare.append("processes")
        return replace(parts, **{name: getattr(parts, name) / self.parallelism.sync_every for name in rare})

    def _with_loading(self, parts: StepParts) -> StepParts:
        """Return the step with what slow loaders add."""
        cores = self.device.cores or CORES * self.fabric.node
        rate = self.job.loader_rate or read_parameters().get(f"{self.job.loader}_per_core", 0.0) * cores
        if not rate:
            return parts
        samples = self.job.batch * self.parallelism.data * min(self.fabric.node, self.devices) / self.devices
        return replace(parts, input=float(loading_added(read_parameters(), parts.total, samples / rate)))

    def _flat(self) -> _Timeline:
        """Return the timeline of devices that all have the whole model, or their part of each layer."""
        slowdown = 0.0
        if self.fabric.kind:
            of_kind = float(read_parameters()[f"overlap_slowdown_{self.fabric.kind}"])
            slowdown = float(network_slowdown(of_kind, self.fabric.kind == "network", self.fabric.nic))
        found = sync_step(self._work(), self.parallelism, self.groups, slowdown)
        inside = self.parallelism.pieces * self.within.seconds(slice(None))
        return _Timeline(
            compute=found.compute - inside,
            inside=inside,
            waited=0.0,
            sync=found,
            overlap_slowdown=max(0.0, found.seconds - found.compute - found.exposed),
            calls=(join_calls([*self._mean_calls(found), *self._calls_within(slice(None))]),),
            spans=found.spans,
        )

    def _work(self) -> DeviceWork:
        """Return what travels: gradients, and blocks with parameters, each with those without behind it."""
        sharded = self.parallelism.strategy in SHARDED
        found, root = list[Unit](), NO_ROOT
        rows = zip(self.profile.blocks, *self.times, self.within.forward, self.within.backward, strict=True)
        for block, forward, backward, ahead, behind in rows:
            unit = self._unit(block)
            if sharded and unit.parameter_bytes and not is_unit(self.profile, block):
                root = replace(
                    root,
                    parameter_bytes=root.parameter_bytes + unit.parameter_bytes,
                    gradient_bytes=root.gradient_bytes + unit.gradient_bytes,
                )
                unit = replace(unit, parameter_bytes=0.0, gradient_bytes=0.0)
            unit = replace(
                unit, forward=forward + ahead, backward=backward + behind, forward_calls=ahead, backward_calls=behind
            )
            if found and not block.parameters:
                unit = found.pop().joined(unit)
            found.append(unit)
        gradients, of_experts = self._gradients()
        largest = max((layer.parameters for layer in self.profile.layers), default=0) * self._weight_item
        return DeviceWork(
            units=found,
            gradients=gradients,
            root=root,
            of_experts=of_experts,
            largest=largest,
        )

    def _unit(self, block: Block) -> Unit:
        return Unit.of(
            count_parameters(self.profile, self.parallelism, [block]), self._weight_item, self._gradient_item
        )

    @property
    def _weight_item(self) -> int:
        """Bytes of an element of a parameter as it travels."""
        return self.job.item if self.parallelism.strategy in SHARDED else 2 if self.parallelism.half_weights else 4

    @property
    def _gradient_item(self) -> int:
        """Bytes of an element of a gradient as it travels."""
        if self.parallelism.gradient_bytes:
            return self.parallelism.gradient_bytes
        return (
            2 if self.parallelism.half_weights or (self.parallelism.strategy in SHARDED and self.job.item == 2) else 4
        )

    def _gradients(self) -> tuple[list[Gradient], list[Gradient]]:
        """Return the gradients as backward makes them, those of experts apart.

        What a block exchanges is spread over its layers.
        """
        compute, again = self.compute, self.parallelism.recompute == "full"
        own = [back + again * ahead for ahead, back in zip(compute.forward, compute.backward, strict=True)]
        shares, first = list[float](), 0
        whole = [back + behind for back, behind in zip(self.times.backward, self.within.backward, strict=True)]
        for (_, layers), seconds in zip(groupby(layer.block for layer in self.profile.layers), whole, strict=True):
            count = len([*layers])
            part = own[first : first + count]
            shares += [seconds * each / (sum(part) or 1.0) for each in part]
            first += count
        alike, of_experts = split_tensors(self.profile.layers, self.parallelism)
        return gradients_of(alike, shares, self._gradient_item), gradients_of(of_experts, shares, self._gradient_item)

    def _mean_calls(self, sync: SyncTimes) -> list[Call]:
        """Return what the data axis exchanges in the mean step, as local SGD averages after some only."""
        every = self.parallelism.sync_every
        return [call if every == 1 else call._replace(times=call.times / every) for call in sync.calls]

    def _calls_within(self, blocks: slice) -> list[Call]:
        """Return what some blocks exchange in a step."""
        return [
            call._replace(times=call.times * self.parallelism.pieces)
            for one in self.within.calls[blocks]
            for call in one.all
        ]

    def _pipelined(self) -> _Timeline:
        """Return a pipeline's timeline; each stage exchanges its gradients once it has them all."""
        parallelism = self.parallelism
        stages, devices = self._stages(), range(parallelism.pipeline)
        schedule = "gpipe" if parallelism.schedule == "naive" else parallelism.schedule
        program = pipeline_program(schedule, [one.times for one in stages], parallelism.pipeline, parallelism.pieces)
        rows = [*zip(program.tasks, program.intervals(), strict=True)]
        ends = [max(interval.end for task, interval in rows if task.stream[0] == device) for device in devices]
        of_device = [stages[device :: parallelism.pipeline] for device in devices]
        syncs = [self._stage_sync(part) for part in of_device]
        busy = [parallelism.pieces * sum(one.times.forward + one.times.backward for one in part) for part in of_device]
        most = max(devices, key=lambda device: busy[device])
        inside = parallelism.pieces * sum(self.within.seconds(one.blocks) for one in of_device[most])
        finished = max(end + sync.seconds for end, sync in zip(ends, syncs, strict=True))
        calls = [
            [*self._mean_calls(sync), *(call for one in part for call in (*one.sends, *self._calls_within(one.blocks)))]
            for part, sync in zip(of_device, syncs, strict=True)
        ]
        return _Timeline(
            compute=busy[most] - inside,
            inside=inside,
            waited=max(ends) - busy[most],
            sync=SyncTimes(finished, busy[most], finished - max(ends)),
            overlap_slowdown=0.0,
            calls=tuple(map(join_calls, calls)),
            spans=tuple((task.name.split()[0], f"{task.stream[1]} {task.stream[0]}", *times) for task, times in rows),
        )

    def _stages(self) -> list[_StageWork]:
        """Return the stages of a pipeline, with the messages that each sends on and back in a step."""
        parallelism, rows, first = self.parallelism, list[_StageWork](), 0
        stages, back = cut_stages(self.profile, parallelism.pipeline * parallelism.virtual), list[Call]()
        for number, stage in enumerate(stages):
            part = slice(first, first + len(stage))
            nbytes = stage[-1].output_bytes * self.job.microbatch * self.job.item / self.profile.item_bytes
            nbytes /= parallelism.tensor if parallelism.sequence else 1
            on = [Call("send_recv", nbytes, Group(2, parallelism.tensor * parallelism.data), parallelism.pieces)]
            if number + 1 == len(stages):
                on = []
            send = self.fabric.seconds(*on[0][:3]) if on else 0.0
            forward = sum(self.times.forward[part]) + sum(self.within.forward[part])
            backward = sum(self.times.backward[part]) + sum(self.within.backward[part])
            rows.append(_StageWork(stage, part, StageTimes(forward, backward, send), (*on, *back)))
            first, back = part.stop, on
        return rows

    def _stage_sync(self, part: Sequence[_StageWork]) -> SyncTimes:
        """Return what the data axis exchanges of a device's stages, behind its last backward."""
        blocks = {block.name: block for one in part for block in one.stage}
        units = [self._unit(one) for one in blocks.values()]
        layers = [layer for layer in self.profile.layers if layer.block in blocks]
        alike, of_experts = (
            gradients_of(one, [0.0] * len(layers), self._gradient_item)
            for one in split_tensors(layers, self.parallelism)
        )
        alone = replace(self.parallelism, microbatches=1, pipeline=1, schedule="1f1b", virtual=1)
        return sync_step(DeviceWork(units, alike, of_experts=of_experts), alone, self.groups, 0.0)
