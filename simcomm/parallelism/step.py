"""A training step on a mesh of devices: where its seconds go, what each device keeps, and how sure that is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby
from math import exp, sqrt
from statistics import NormalDist
from typing import NamedTuple

from collectives.buckets import Gradient, gradients_of
from collectives.checks import check_whole_number
from collectives.errors import InputError, TooLarge
from collectives.parallelism import SHARDED, Parallelism
from collectives.records.model_profile import ModelProfile
from simcomm.nccl.host_links import SharedLink
from simcomm.parallelism.compute import BlockTimes, Compute
from simcomm.parallelism.experts import count_parameters, split_tensors, with_experts
from simcomm.parallelism.groups import Group
from simcomm.parallelism.interconnect import Call, Interconnect, join_calls
from simcomm.parallelism.layer_collectives import LayerCollectives, find_layer_collectives
from simcomm.parallelism.memory import WHOLE_STATES, Memory, check_fit, check_form, device_part, is_unit, memory_of
from simcomm.parallelism.pipeline import StageTimes, pipeline_program
from simcomm.parallelism.shared_links import Traffic
from simcomm.parallelism.stages import Stage, cut_stages
from simcomm.parallelism.sync import NO_ROOT, DataGroups, SyncTimes, Unit, Work, data_groups, sync_step
from simcomm.scaling.cases import expected_maximum
from simcomm.scaling.descriptions import CORES
from simcomm.scaling.intervals import Shares, log_halfwidth
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.step import FULL_NIC, USUAL_STEP, process_seconds

Spans = tuple[tuple[str, str, float, float], ...]  # name, stream, begin, end
MOST_TASKS = 400_000  # of a step: a second or two
NOT_A_BOTTLENECK = ("compute", "optimizer")
EXCHANGED = ("tensor", "expert", "pipeline", "sync", "steal", "copies", "contention")


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step by what they go to; they add up to the step.

    ``compute`` is of the device with most to do, with what is computed again; ``tensor`` and ``expert`` are collectives
    within layers; ``pipeline`` is waiting for other stages; ``sync`` what the data axis adds that nothing hides, and
    ``steal`` what it takes from computing beside it; ``copies`` are passes over gradients that several devices need,
    and ``processes`` is waiting for the other GPUs' processes, which share a host's cores.
    ``input`` is what loaders that are too slow add, ``contention`` what traffic that shares links does.
    """

    compute: float
    optimizer: float
    tensor: float = 0.0
    expert: float = 0.0
    pipeline: float = 0.0
    sync: float = 0.0
    steal: float = 0.0
    copies: float = 0.0
    stragglers: float = 0.0
    input: float = 0.0
    contention: float = 0.0
    processes: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, float]:
        """Return the seconds by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class StepPrediction:
    """A step on so many devices. ``rate`` are samples a second of all of them."""

    parallelism: Parallelism
    devices: int
    batch_size: int  # of each device of the data axis
    parts: StepParts
    memory: tuple[Memory, ...]  # of a device of each stage
    calls: tuple[tuple[Call, ...], ...]  # in a step, of a device of each stage
    alone: float  # samples a second of one device that has no others
    spread: float  # of the log of the rate of one device
    spans: Spans = ()
    network: bool = False  # whether several hosts exchange
    unequal: bool = False  # whether batches are of unequal work
    shared_between: tuple[SharedLink, ...] = ()  # links on which traffic holds other traffic back
    shared_within: tuple[tuple[str, SharedLink], ...] = ()  # by part: links on which messages of one collective do

    @property
    def rate(self) -> float:
        """Samples a second of all devices."""
        return self.batch_size * self.parallelism.data / self.parts.total

    @property
    def sent_bytes(self) -> float:
        """Bytes that the device sends that sends most."""
        return max(sum(call.sent for call in calls) for calls in self.calls)

    @property
    def efficiency(self) -> float:
        """The rate, as a share of what as many devices would reach that had nothing to exchange."""
        return self.rate / (self.devices * self.alone)

    @property
    def bottleneck(self) -> tuple[str, float]:
        """What takes most beside computing, and its share of the step; "compute" where that is below 2 %."""
        found = {name: value for name, value in self.parts.as_dict().items() if name not in NOT_A_BOTTLENECK}
        found["sync"] += found.pop("steal")
        name = max(found, key=lambda each: found[each])
        share = found[name] / self.parts.total
        return (name, share) if share >= 0.02 else ("compute", self.parts.compute / self.parts.total)

    def interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the rate: of one device's, and of what scaling loses, taken as independent."""
        scaling, alone = self._widths(coverage)
        width = exp(sqrt(scaling**2 + alone**2))
        return self.rate / width, self.rate * width

    def efficiency_interval(self, coverage: float = 0.8) -> tuple[float, float]:
        """Return bounds of the efficiency, which does not depend on the rate of one device; 1 is the most."""
        width = exp(self._widths(coverage)[0])
        return self.efficiency / width, max(self.efficiency, min(1.0, self.efficiency * width))

    def parts_intervals(self, coverage: float = 0.8) -> dict[str, tuple[float, float]]:
        """Return bounds of the seconds of each part: of what a device computes alone, and of all that several add.

        Of what several add only the sum is known to be so far off, so all of it moves together.
        """
        scaling, alone = map(exp, self._widths(coverage))
        own = self.parts.compute + self.parts.optimizer
        added = self.parts.total - own
        least, most = max(0.0, self.parts.total / scaling - own), self.parts.total * scaling - own
        few, many = (least / added, most / added) if added > 0 else (0.0, 0.0)
        found = dict[str, tuple[float, float]]()
        for name, value in self.parts.as_dict().items():
            if name in NOT_A_BOTTLENECK:
                found[name] = value / alone, value * alone
            else:
                found[name] = value * few, value * many
        return found

    @property
    def rests_on(self) -> Shares:
        """What the step rests on, by which its interval is wider."""
        parts, total = self.parts, self.parts.total
        waiting = parts.stragglers / total
        exchanged = sum(getattr(parts, name) for name in EXCHANGED) / total
        felt = 1 - (1 - parts.input / total) ** read_parameters()["input_power"]
        unequal = waiting if self.unequal else 0.0
        return Shares(exchanged, waiting - unequal, felt, unequal, float(self.network))

    def _widths(self, coverage: float) -> tuple[float, float]:
        """Return half the intervals of the logarithms of what scaling loses and of the rate of one device."""
        scaling = float(log_halfwidth(self.rests_on, coverage)) if self.devices > 1 else 0.0
        return scaling, self.spread * NormalDist().inv_cdf((1 + coverage) / 2)


@dataclass(frozen=True)
class StepModel:
    """What a step's prediction depends on beside the mesh: the computing, what joins the devices, the job."""

    compute: Compute
    fabric_of: Callable[[int], Interconnect]  # by the number of devices
    optimizer: str = "sgd"
    precision: str = "float32"
    memory: float | None = None  # bytes of a device; None: not checked
    device: str = "a device"
    loader_rate: float = 0.0  # samples a second that a host's loaders make; 0: no limit
    variable_batches: bool = False  # of unequal work, as sentences of any length
    memory_bandwidth: float = 0.0  # bytes/s of a GPU whose copies and stragglers are reckoned with; 0: of neither
    cores: int = 0  # of a whole host, of whose GPUs some may not be used; 0: so many a GPU that is used as is usual
    input_bytes: float | None = None  # of a sample as it is copied to a device; None: the profile's

    @property
    def profile(self) -> ModelProfile:
        """The model."""
        return self.compute.profile

    def predict(self, parallelism: Parallelism, devices: int, batch_size: int) -> StepPrediction:
        """Return a step on so many devices with ``batch_size`` samples on each of the data axis.

        Raises InputError for a mesh of another number, a form that the model cannot have, and a batch that does not
        fit into the devices' memory.
        """
        check_whole_number("batch_size", batch_size, at_least=1)
        fabric = self.fabric_of(devices)
        form = parallelism.for_devices(devices, fabric.node)
        check_form(self.profile, form)
        check_tasks(self.profile, form)
        settings = {"optimizer": self.optimizer, "precision": self.precision}
        if self.memory is None:
            kept = memory_of(self.profile, form, batch_size, **settings)
        else:
            kept = check_fit(self.profile, form, batch_size, self.memory, self.device, **settings)
        return _Mesh(self, form, devices, batch_size, fabric).predict(tuple(kept))


def check_tasks(profile: ModelProfile, form: Parallelism) -> None:
    """Raise TooLarge for a step of more tasks than are simulated."""
    tasks = 4 * form.pieces * (form.pipeline * form.virtual if form.pipeline > 1 else len(profile.blocks))
    if form.pieces > 1 and tasks > MOST_TASKS:
        raise TooLarge(
            f"{form.pieces} microbatches are about {tasks:,} tasks; up to {MOST_TASKS:,} are simulated: give fewer"
        )


class _StageWork(NamedTuple):
    """A stage of a pipeline: its blocks, where they are in the model, and what it sends in a step, on and back."""

    stage: Stage
    blocks: slice
    times: StageTimes
    sends: tuple[Call, ...]


class _StepResult(NamedTuple):
    """A step before loaders and local SGD: where its seconds go, the calls of each stage, and links that are shared."""

    parts: StepParts
    calls: tuple[tuple[Call, ...], ...]
    spans: Spans
    shared: tuple[SharedLink, ...] = ()


@dataclass(frozen=True)
class _Mesh:
    """A step on one mesh."""

    model: StepModel
    form: Parallelism
    devices: int
    batch_size: int
    fabric: Interconnect

    @property
    def samples(self) -> float:
        """Samples of a microbatch."""
        return self.batch_size / self.form.pieces

    @property
    def item(self) -> int:
        """Bytes of an element of activations, and of gathered parameters."""
        return 4 if self.model.precision == "float32" and not self.form.half_weights else 2

    @cached_property
    def profile(self) -> ModelProfile:
        """What a device has of the model: its part of divided matrices, and its own experts."""
        return device_part(self.model.profile, self.form)

    @cached_property
    def compute(self) -> Compute:
        """How long a device takes for the whole model, of which a token visits some experts."""
        return with_experts(self.model.compute, self.form)

    @cached_property
    def within(self) -> LayerCollectives:
        """What the layers exchange for a microbatch."""
        return find_layer_collectives(self.profile, self.form, self.samples, self.item, self.fabric)

    def predict(self, kept: tuple[Memory, ...]) -> StepPrediction:
        times = self._times()
        parts, calls, spans, shared = (self._pipelined if self.form.pipeline > 1 else self._flat)(times)
        inside, share = parts.tensor, self.within.tensor_share
        parts = replace(parts, tensor=inside * share, expert=inside * (1 - share))
        parts = self._with_loading(self._less_often(parts))
        alone = self.batch_size / self.compute.step(self.batch_size)
        return StepPrediction(
            parallelism=self.form,
            devices=self.devices,
            batch_size=self.batch_size,
            parts=parts,
            memory=kept,
            calls=calls,
            alone=alone,
            spread=self.compute.spread,
            spans=spans,
            network=self.devices > self.fabric.node,
            unequal=self.model.variable_batches,
            shared_between=shared,
            shared_within=self._shared_within(calls),
        )

    def _less_often(self, parts: StepParts) -> StepParts:
        """Return the mean step of local SGD, which averages after some steps only; ``contention`` is a mean already."""
        rare = ["sync", "steal", "copies"]
        if self.form.data == self.devices:  # others exchange within layers, or between stages, in every step
            rare.append("processes")
        return replace(parts, **{name: getattr(parts, name) / self.form.sync_every for name in rare})

    def _with_loading(self, parts: StepParts) -> StepParts:
        """Return the step with what slow loaders add: the slower decides, as in the model of published trainings."""
        loading = self.fabric.links.loading_seconds(self._loaded) if self.fabric.links is not None else 0.0
        if self.model.loader_rate:
            samples = self.batch_size * self.form.data * min(self.fabric.node, self.devices) / self.devices
            loading = max(loading, samples / self.model.loader_rate)
        if not loading:
            return parts
        power = read_parameters()["input_power"]
        whole = (parts.total**power + loading**power) ** (1 / power)
        return replace(parts, input=max(0.0, whole - parts.total))

    @property
    def _loaded(self) -> float:
        """Bytes of samples that are copied to each device for a step; of a pipeline only the first stage loads."""
        if self.form.pipeline > 1:
            return 0.0
        given = self.model.input_bytes
        return self.batch_size * (self.model.profile.input_bytes if given is None else given)

    @property
    def _traffic(self) -> Traffic | None:
        """What collectives within layers put on links; of those of tensors and of experts the former."""
        calls = [call for one in self.within.calls for call in one.all if call.group.size > 1]
        first = next((call for call in calls if call.collective != "all_to_all"), calls[0] if calls else None)
        return None if first is None else Traffic(first.collective, first.group, is_within=True)

    def _shared_within(self, calls: Sequence[Sequence[Call]]) -> tuple[tuple[str, SharedLink], ...]:
        """Return by part of the step the link on which messages of its largest collective hold each other back."""
        links, within = self.fabric.links, self._traffic
        if links is None:
            return ()
        inside = within.group if within is not None else None
        others = [call for stage in calls for call in stage if call.group not in (inside, Group(1))]
        most = max(
            (call for call in others if call.collective != "send_recv"), key=lambda call: call.sent, default=None
        )
        asked = {"sync": Traffic(most.collective, most.group) if most is not None else None, "tensor": within}
        found = [(part, links.shared_within(one)) for part, one in asked.items() if one is not None]
        return tuple((part, link) for part, link in found if link is not None)

    def _times(self) -> BlockTimes:
        """Return what a device computes of each block for a microbatch; recomputing is part of backward."""
        found = self.compute.blocks(self.samples)
        parts, again = self.form.tensor, self.form.recompute == "full"
        forward = tuple(each / parts for each in found.forward)
        backward = tuple(
            each / parts + (ahead if again else 0.0) for each, ahead in zip(found.backward, forward, strict=True)
        )
        return BlockTimes(forward, backward)

    def _work(self, times: BlockTimes) -> Work:
        """Return what travels: gradients, and blocks with parameters, each with those without behind it."""
        rows = zip(self.profile.blocks, times.forward, times.backward, self.within.forward, self.within.backward,
                   strict=True)  # fmt: skip
        found: list[Unit] = []
        root = NO_ROOT
        sharded = self.form.form in SHARDED
        grad, weight = self._gradient_item, self.item if sharded else 2 if self.form.half_weights else 4
        for block, forward, backward, ahead, behind in rows:
            count, own = count_parameters(self.profile, self.form, [block])
            if sharded and count and not is_unit(self.profile, block):
                root = Unit(0.0, 0.0, root.parameter_bytes + count * weight, root.gradient_bytes + count * grad)
                count = 0
            unit = Unit(
                forward=forward + ahead,
                backward=backward + behind,
                parameter_bytes=count * weight,
                gradient_bytes=count * grad,
                forward_calls=ahead,
                backward_calls=behind,
                expert_bytes=own * weight,
                expert_gradient_bytes=own * grad,
            )
            if found and not block.parameters:
                unit = found.pop().joined(unit)
            found.append(unit)
        gradients, of_experts = self._gradients(times)
        largest = max((layer.parameters for layer in self.profile.layers), default=0) * weight
        return Work(found, gradients, root, self._traffic, self._loaded, of_experts, largest)

    @property
    def _gradient_item(self) -> int:
        """Bytes of an element of a gradient as it travels."""
        if self.form.gradient_bytes:
            return self.form.gradient_bytes
        return 2 if self.form.half_weights or (self.form.form in SHARDED and self.item == 2) else 4

    def _gradients(self, times: BlockTimes) -> tuple[list[Gradient], list[Gradient]]:
        """Return the gradients as backward makes them, those of experts apart.

        What a block exchanges is spread over its layers.
        """
        compute, again = self.compute, self.form.recompute == "full"
        own = [back + again * ahead for ahead, back in zip(compute.forward, compute.backward, strict=True)]
        shares, first = list[float](), 0
        whole = [back + behind for back, behind in zip(times.backward, self.within.backward, strict=True)]
        for (_, layers), seconds in zip(groupby(layer.block for layer in self.profile.layers), whole, strict=True):
            count = len([*layers])
            part = own[first : first + count]
            shares += [seconds * each / (sum(part) or 1.0) for each in part]
            first += count
        alike, of_experts = split_tensors(self.profile.layers, self.form)
        return gradients_of(alike, shares, self._gradient_item), gradients_of(of_experts, shares, self._gradient_item)

    def _flat(self, times: BlockTimes) -> _StepResult:
        found, pieces = sync_step(self._work(times), self.form, self._groups(), self._steal()), self.form.pieces
        inside = pieces * self.within.seconds(slice(None))
        steal = max(0.0, found.seconds - found.compute - found.exposed)
        parts = self._parts(found.compute - inside, inside, 0.0, found, steal)
        calls = join_calls([*self._mean_calls(found), *self._calls_within(slice(None))])
        return _StepResult(parts, (calls,), found.spans, found.delay.links)

    def _mean_calls(self, sync: SyncTimes) -> list[Call]:
        """Return what the data axis exchanges in the mean step, as local SGD averages after some only."""
        every = self.form.sync_every
        return [call if every == 1 else call._replace(times=call.times / every) for call in sync.calls]

    def _calls_within(self, blocks: slice) -> list[Call]:
        """Return what some blocks exchange in a step."""
        return [
            call._replace(times=call.times * self.form.pieces) for one in self.within.calls[blocks] for call in one.all
        ]

    def _pipelined(self, times: BlockTimes) -> _StepResult:
        """Return a pipeline's step; each stage exchanges its gradients when it has them all, and no other is kept."""
        form = self.form
        if form.form in SHARDED:
            raise InputError(
                f"form {form.form} gathers parameters for each microbatch, and no pipeline ({form.pipeline} stages) is "
                "predicted with it; take zero1, or pipeline = 1"
            )
        stages = self._stages(times)
        schedule = "gpipe" if form.schedule == "naive" else form.schedule
        program = pipeline_program(schedule, [one.times for one in stages], form.pipeline, form.pieces)
        intervals = program.intervals()
        ends = [max(i.end for t, i in zip(program.tasks, intervals, strict=True) if t.stream[0] == device)
                for device in range(form.pipeline)]  # fmt: skip
        groups = self._groups()
        of_device = [stages[device :: form.pipeline] for device in range(form.pipeline)]
        syncs = [self._stage_sync(part, groups) for part in of_device]
        finished = max(end + sync.seconds for end, sync in zip(ends, syncs, strict=True))
        busy = [form.pieces * sum(one.times.forward + one.times.backward for one in part) for part in of_device]
        most = max(range(form.pipeline), key=lambda device: busy[device])
        inside = form.pieces * sum(self.within.seconds(one.blocks) for one in of_device[most])
        waited = max(ends) - busy[most]
        exposed = finished - max(ends)
        found = SyncTimes(finished, busy[most], exposed, 0.0)
        spans = tuple(
            (task.name.split()[0], f"{task.stream[1]} {task.stream[0]}", *interval)
            for task, interval in zip(program.tasks, intervals, strict=True)
        )
        calls = tuple(
            join_calls(
                [
                    *self._mean_calls(sync),
                    *(call for one in part for call in [*one.sends, *self._calls_within(one.blocks)]),
                ]
            )
            for part, sync in zip(of_device, syncs, strict=True)
        )
        return _StepResult(self._parts(busy[most] - inside, inside, waited, found, 0.0), calls, spans)

    def _stages(self, times: BlockTimes) -> list["_StageWork"]:
        """Return the stages of a pipeline, with the messages that each sends on and back in a step."""
        form, rows, first = self.form, list[_StageWork](), 0
        stages, back = cut_stages(self.profile, form.pipeline * form.virtual), list[Call]()
        for number, stage in enumerate(stages):
            part = slice(first, first + len(stage))
            nbytes = stage[-1].output_bytes * self.samples * self.item / self.profile.item_bytes
            nbytes /= form.tensor if form.sequence else 1
            on = [Call("send_recv", nbytes, Group(2, form.tensor * form.data), form.pieces)]
            if number + 1 == len(stages):
                on = []
            send = self.fabric.seconds(*on[0][:3]) if on else 0.0
            forward = sum(times.forward[part]) + sum(self.within.forward[part])
            backward = sum(times.backward[part]) + sum(self.within.backward[part])
            rows.append(_StageWork(stage, part, StageTimes(forward, backward, send), (*on, *back)))
            first, back = part.stop, on
        return rows

    def _stage_sync(self, part: Sequence["_StageWork"], groups: DataGroups) -> SyncTimes:
        """Return what the data axis exchanges of a device's stages, behind its last backward."""
        blocks = {block.name: block for one in part for block in one.stage}
        item = 2 if self.form.half_weights else 4
        counts = [count_parameters(self.profile, self.form, [block]) for block in blocks.values()]
        units = [
            Unit(
                forward=0.0,
                backward=0.0,
                parameter_bytes=count * item,
                gradient_bytes=count * item,
                forward_calls=0.0,
                backward_calls=0.0,
                expert_bytes=own * item,
                expert_gradient_bytes=own * item,
            )
            for count, own in counts
        ]
        layers = [layer for layer in self.profile.layers if layer.block in blocks]
        gradients, of_experts = (
            gradients_of(tensors, [0.0] * len(layers), item) for tensors in split_tensors(layers, self.form)
        )
        alone = replace(self.form, microbatches=1, pipeline=1, schedule="1f1b", virtual=1)
        return sync_step(Work(units, gradients, of_experts=of_experts), alone, groups, 0.0)

    def _groups(self) -> DataGroups:
        return data_groups(self.fabric, self.form)

    def _steal(self) -> float:
        if not self.fabric.kind:
            return 0.0
        found = float(read_parameters()[f"steal_{self.fabric.kind}"])
        return found * min(1.0, self.fabric.nic / FULL_NIC) if self.fabric.kind == "network" else found

    def _straggling(self, values: Mapping[str, float], seconds: float) -> float:
        """Return what the slowest device and the slowest host add; what differs by steps averages out in long ones."""
        steps = float(min(1.0, USUAL_STEP / seconds) ** 0.5)
        nodes = values["jitter_nodes"] * steps * expected_maximum(-(-self.devices // self.fabric.node))
        jitter = values["jitter_variable" if self.model.variable_batches else "jitter"]
        return seconds * (jitter * expected_maximum(self.devices) + nodes)

    def _parts(self, compute: float, inside: float, waited: float, sync: SyncTimes, steal: float) -> StepParts:
        form, counts = self.form, count_parameters(self.profile, self.form)
        changed = (counts.whole if form.form in WHOLE_STATES else counts.divided(form)) / form.pipeline
        optimizer = self.compute.optimizer * changed / self.model.profile.parameters
        copies = processes = stragglers = 0.0
        if self.model.memory_bandwidth and self.devices > 1:
            values = read_parameters()
            if form.data > 1:
                exchanged = counts.shared + (counts.expert if form.data > form.expert else 0.0)
                passed = self._gradient_item * exchanged / form.pipeline
                copies = values["copy_passes"] * passed / self.model.memory_bandwidth
            # also of ``data_parallel``: its one process launches for all GPUs, as TensorFlow's to which this is fitted
            cores = self.model.cores or CORES * self.fabric.node
            processes = float(process_seconds(values, min(self.fabric.node, self.devices), cores))
            stragglers = self._straggling(values, compute + optimizer)
        return StepParts(
            compute=compute,
            optimizer=optimizer,
            tensor=inside,
            expert=0.0,
            pipeline=waited,
            sync=sync.exposed,
            steal=steal,
            copies=copies,
            stragglers=stragglers,
            contention=sync.delay.seconds,
            processes=processes,
        )
