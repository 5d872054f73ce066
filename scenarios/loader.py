"""Load a scenario file: build its clusters, find its algorithms, and check that they fit together."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import find_algorithm
from collectives.checks import check_sequence, check_text
from collectives.declaration import AUTO, NCCL, Algorithm, auto, nccl
from collectives.errors import InputError, ProgramError, Undefined
from collectives.input_files import FileBytes, check_input, read_text
from collectives.proof.verifier import check_bitwise_identical
from collectives.quoting import cut, make_printable
from collectives.spec import item_bytes
from collectives.training.gradients import RESNETS
from collectives.training.parallelism import Parallelism
from collectives.training.workload import Training, is_file_reference
from scenarios import toml_files
from scenarios.cluster_sections import LinksSection
from scenarios.faults import FaultsSection
from scenarios.fields import Reference
from scenarios.messages import read_section
from scenarios.nccl_sections import NcclSection
from scenarios.network_section import ClusterSection, NetworkSection
from scenarios.sections import CollectiveSection, PlanScenarioSection, PlanSection, ScenarioSection, WhatIfSection
from scenarios.training_section import OVERLAPPED, Sync, TrainingSection
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import LinkBudget
from simcomm.model.faults import NO_FAULTS, Faults, check_faults

MOST_PROVED = 32  # maximum world size at which a gradient sync is verified, which takes 0.1 s


@dataclass(frozen=True)
class CollectiveComparison:
    """One collective, the algorithms to compare for it, and the buffer sizes."""

    name: str
    algorithms: tuple[Algorithm, ...]
    sizes: tuple[int, ...]  # bytes; multiples of the element size
    dtype: str
    op: str
    root: int

    @property
    def programs(self) -> tuple[Algorithm, ...]:
        """All algorithms except NCCL's own implementation, which has no rank program."""
        return tuple(algorithm for algorithm in self.algorithms if algorithm.has_program)

    def call(self, algorithm: Algorithm, nbytes: int, world_size: int) -> CollectiveCall:
        """Return a call of one algorithm with ``nbytes`` bytes per rank. ``nbytes`` need not be one of ``sizes``."""
        call = replace(make_call(algorithm, world_size, nbytes, dtype=self.dtype), op=self.op, root=self.root)
        call.check(world_size)
        return call

    def calls(self, world_size: int) -> Iterator[CollectiveCall]:
        """Yield the calls of all algorithms at the first size, then at the second size, and so on."""
        for nbytes in self.sizes:
            for algorithm in self.algorithms:
                yield self.call(algorithm, nbytes, world_size)


@dataclass(frozen=True)
class WhatIf:
    """A variant of a scenario that is also predicted, with another cluster or other faults."""

    title: str
    cluster: Cluster
    faults: Faults = NO_FAULTS


@dataclass(frozen=True, repr=False)
class LoadedScenario:
    """A scenario with its clusters, algorithms and training runs."""

    title: str
    path: Path
    cluster: Cluster
    collective: CollectiveComparison | None
    trainings: tuple[Training, ...]  # one for each gradient_sync
    what_ifs: tuple[WhatIf, ...]
    faults: Faults = NO_FAULTS
    left_out: str = ""  # reason why ``trainings`` does not contain the training

    def __repr__(self) -> str:
        return f"<Scenario {self.title!r}: {self.cluster.title}>"


def read_title(reference: str | Path, overrides: Sequence[str] = (), values: Sequence[str] = ()) -> str:
    """Return the title of a scenario. In a sweep, ``values`` are the overrides for one point of the sweep."""
    builder = builder_of(reference, overrides)
    return builder.title(builder.read(*values))


def load(reference: str | Path, overrides: Sequence[str] = ()) -> LoadedScenario:
    """Load a scenario file or a built-in scenario, and apply ``section.key=value`` overrides.

    Paths in a file are relative to its directory. In a built-in scenario, they are relative to the current directory,
    except for models that are shipped with it. Algorithm files are executed. Raise InputError for an invalid scenario.
    The message contains the file, the key and the value.

    >>> load("star8", ["cluster.hosts=4"]).cluster.world_size
    4
    """
    builder = builder_of(reference, overrides)
    return builder.scenario(builder.read())


@dataclass(frozen=True)
class PlannedTraining:
    """A training run, and the ``[plan]`` table with its goals and limits."""

    title: str
    path: Path
    training: TrainingSection
    plan: PlanSection


@dataclass(frozen=True)
class SpreadTraining(PlannedTraining):
    """A training run on many devices, with a parallelism strategy."""

    folder: Path  # base of relative paths
    cluster: Cluster
    algorithm: Algorithm | None  # all_reduce algorithm on a simulated network
    parallelism: Parallelism


def is_spread(reference: str | Path, overrides: Sequence[str] = ()) -> bool:
    """Return whether a scenario has a ``[training.parallelism]`` table. Raise InputError for an invalid file."""
    training = toml_files.tables(builder_of(reference, overrides).path, overrides).get("training")
    return isinstance(training, dict) and "parallelism" in training


def read_spread_training(reference: str | Path, overrides: Sequence[str] = ()) -> SpreadTraining:
    """Return a scenario's training run on many devices. Raise InputError for an invalid scenario."""
    builder = builder_of(reference, overrides)
    section = builder.read()
    builder.check_spread(section)
    training, cluster = builder.training(section), builder.build_cluster(section.cluster, "cluster", section.nccl)
    algorithm: Algorithm | None = None
    if training.gradient_sync and training.gradient_sync[0].name not in OVERLAPPED:
        algorithm = builder.find_sync(training.gradient_sync[0], (cluster,), "training.gradient_sync.0")
    with builder.at("training.parallelism"):
        mesh = training.mesh
    title, plan = builder.title(section), section.plan
    return SpreadTraining(title, builder.path, training, plan, builder.folder, cluster, algorithm, mesh)


def devices_to_predict(reference: str | Path, overrides: Sequence[str] = ()) -> int | None:
    """Return the world size of a scenario whose only workload is a training run that ranks cannot run.

    Return None for other scenarios. Raise InputError if the scenario is invalid.
    """
    builder = builder_of(reference, overrides)
    section = builder.read()
    if section.collective is not None or section.training is None or not section.training.why_not_run:
        return None
    return builder.build_cluster(section.cluster, "cluster", section.nccl).world_size


def read_planned_training(reference: str, overrides: Sequence[str] = ()) -> PlannedTraining:
    """Return a scenario's training run and ``[plan]`` table. Raise InputError for an invalid scenario."""
    builder = builder_of(reference, overrides)
    section = read_section(toml_files.tables(builder.path, overrides), builder.where, PlanScenarioSection)
    return PlannedTraining(builder.title(section), builder.path, builder.training(section), section.plan)


def builder_of(reference: str | Path, overrides: Sequence[str] = ()) -> "Builder":
    """Return the Builder of a scenario. Raise InputError if the scenario does not exist or an argument is invalid."""
    if not isinstance(reference, str | Path):
        raise InputError(f"scenario must be a name such as 'star8' or a file, not {reference!r}")
    for text in check_sequence("overrides", overrides, of="texts like 'cluster.hosts=4'"):
        check_text("override", text, "cluster.hosts=4")
    reference = str(reference)
    path = toml_files.find(reference)
    where = f"{path} with --set {', --set '.join(map(cut, overrides))}" if overrides else str(path)
    folder = Path() if reference in toml_files.shipped() else path.parent
    return Builder(where, path, folder, tuple(overrides))


@lru_cache(maxsize=1)  # a command may read its scenario twice, and some have thousands of links
def _read(path: Path, text: str, overrides: tuple[str, ...], where: str) -> ScenarioSection:
    tables = toml_files.apply_overrides(toml_files.parse(path, text), overrides, str(path))
    return read_section(tables, where, ScenarioSection)


@dataclass(frozen=True)
class Builder:
    """Builds the clusters, algorithms and training runs of a scenario."""

    where: str  # prefix of messages
    path: Path
    folder: Path  # base of relative paths
    overrides: tuple[str, ...] = ()

    def read(self, *values: str) -> ScenarioSection:
        """Return the validated scenario file with all overrides applied, followed by those in ``values``."""
        text = read_text(self.path, FileBytes.SCENARIO)
        return _read(self.path, text, (*self.overrides, *values), self.where)

    def title(self, section: "ScenarioSection") -> str:
        """Return the title of the scenario, or its file name if it has no title.

        If overrides change the cluster but not the title, return the file name with these overrides.
        """
        name = make_printable(self.path.stem)
        keys = [text.partition("=")[0].strip() for text in self.overrides]
        changed = [text for text, key in zip(self.overrides, keys, strict=True) if key.startswith("cluster.")]
        if not changed or "title" in keys:
            return section.title or name
        return f"{name} with {', '.join(make_printable(cut(text)) for text in changed)}"

    @contextmanager
    def at(self, key: str) -> Iterator[None]:
        """Add the file and ``key`` to the message of an InputError that is raised in this context."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.where}: {key}: {error}") from error

    def training(self, section: ScenarioSection) -> TrainingSection:
        """Return the ``[training]`` table. Raise InputError if it is missing."""
        if section.training is None:
            raise InputError(f"{self.where}: the [training] table is missing")
        return section.training

    def check_spread(self, section: ScenarioSection) -> None:
        """Raise InputError if a scenario without a collective has ``[faults]`` or ``[[what_if]]`` tables."""
        if section.collective is None and section.faults is not None:
            raise InputError(
                f"{self.where}: faults: training on many devices does not support [faults]; remove [faults], "
                "or set training.gradient_sync, forward, backward and optimizer in training.compute, and a "
                f"training.model of {', '.join(RESNETS)} or FILE.py:NAME"
            )
        if section.collective is None and section.what_if:
            raise InputError(
                f"{self.where}: what_if: training on many devices does not support [[what_if]]; remove the "
                "tables, and use for example `ringlab predict --what-if bandwidth=10,100Gbit/s`"
            )

    def scenario(self, section: ScenarioSection) -> LoadedScenario:
        cluster = self.build_cluster(section.cluster, "cluster", section.nccl)
        what_ifs, clusters, budget = list[WhatIf](), [cluster], LinkBudget()
        for number, other in enumerate(section.what_if):
            what_ifs.append(self._what_if(other, f"what_if.{number}", section, cluster))
            clusters.append(what_ifs[-1].cluster)
            with self.at(f"what_if.{number}"):
                budget.add(cluster.graph, clusters[-1].graph)
        collective = self._collective(section.collective, clusters) if section.collective else None
        left_out = section.training.why_not_run if section.training and section.collective else ""
        trainings = self._trainings(section.training, clusters) if section.training and not left_out else ()
        title, faults = self.title(section), self.find_faults(section.faults, cluster, "faults")
        return LoadedScenario(title, self.path, cluster, collective, trainings, tuple(what_ifs), faults, left_out)

    def _what_if(self, section: WhatIfSection, key: str, scenario: ScenarioSection, base: Cluster) -> WhatIf:
        cluster = base
        if section.cluster is not None or section.nccl is not None:
            place = "cluster" if section.cluster is None else f"{key}.cluster"
            cluster = self.build_cluster(section.cluster or scenario.cluster, place, section.nccl or scenario.nccl)
        return WhatIf(section.title, cluster, self.find_faults(section.faults, cluster, f"{key}.faults"))

    def find_faults(self, section: FaultsSection | None, cluster: Cluster, key: str) -> Faults:
        """Return the faults in the table at ``key``. Raise InputError for a rank or link that does not exist."""
        if section is None:
            return NO_FAULTS
        faults = section.faults()
        each = [(f"rank.{number}", Faults(ranks=(rank,))) for number, rank in enumerate(faults.ranks)]
        each += [(f"link.{number}", Faults(links=(link,))) for number, link in enumerate(faults.links)]
        for place, fault in each:
            with self.at(f"{key}.{place}"):
                check_faults(fault, cluster.graph, cluster.world_size)
        return faults

    def build_cluster(self, section: ClusterSection, key: str, settings: NcclSection | None = None) -> Cluster:
        """Return the cluster that the table at ``key`` describes. Raise InputError if the table is invalid."""
        with self.at(f"{key}.link" if isinstance(section, LinksSection) else key):
            cluster = section.build(self.folder)
        if settings is not None:
            with self.at("nccl"):
                cluster = cluster.under_nccl(settings.settings())
        if not isinstance(section, NetworkSection):
            return cluster
        if section.routing is not None:
            cluster = replace(cluster, routing=section.routing)
        if section.placement is not None:
            with self.at(f"{key}.placement"):
                cluster = section.placement(cluster)
        with self.at(f"{key}.world_size"):
            return cluster if section.world_size is None else cluster.on_first(section.world_size)

    def _collective(self, section: CollectiveSection, clusters: Sequence[Cluster]) -> CollectiveComparison:
        for cluster in clusters:
            if section.root >= cluster.world_size:
                raise InputError(
                    f"{self.where}: collective.root: rank {section.root} does not exist in {cluster.title}; ranks are "
                    f"0 to {cluster.world_size - 1}"
                )
        algorithms = tuple(
            self.find_algorithm(reference, section.name, clusters, f"collective.algorithms.{number}")
            for number, reference in enumerate(section.algorithms)
        )
        width = item_bytes(section.dtype)
        sizes = tuple(nbytes // width * width for nbytes in section.sizes)
        return CollectiveComparison(section.name, algorithms, sizes, section.dtype, section.op, section.root)

    def _trainings(self, section: TrainingSection, clusters: Sequence[Cluster]) -> tuple[Training, ...]:
        try:
            syncs = section.check_run()
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from error
        excluded = {"gradient_sync", "compute", "data_folder", "global_batch_size"}
        keys = section.model_dump(exclude_unset=True, exclude=excluded)
        if "global_batch_size" in section.model_fields_set:
            keys["batch_size"], rest = divmod(section.global_batch_size, world_size := clusters[0].world_size)
            if rest:
                raise InputError(
                    f"{self.where}: training.global_batch_size {section.global_batch_size} is not divisible by "
                    f"{world_size} ranks; use a multiple of {world_size}"
                )
        if section.data_folder:
            keys["data_folder"] = str(self.folder / Path(section.data_folder).expanduser())
        if section.checkpoints:
            keys["checkpoints"] = str(Path(section.checkpoints).expanduser())  # relative to the current folder
        if is_file_reference(section.model):
            is_shipped = (self.path.parent / section.model.rpartition(":")[0]).is_file()
            keys["model"] = os.path.relpath((self.path.parent if is_shipped else self.folder) / section.model)
            file = Path(keys["model"].rpartition(":")[0])
            if file.is_file():  # the ranks may run in another folder
                check_input(file)  # protects the file from being overwritten
        compute, trainings = section.compute.phases if section.compute else None, list[Training]()
        for number, sync in enumerate(syncs):
            key = f"training.gradient_sync.{number}"
            algorithm = None if sync.name == "ddp" and not sync.parameters else self.find_sync(sync, clusters, key)
            with self.at("training"):
                trainings.append(Training(algorithm, buckets=sync.buckets, compute=compute, **keys))
        return tuple(trainings)

    def find_sync(self, sync: Sync, clusters: Sequence[Cluster], key: str) -> Algorithm:
        """Return the all_reduce algorithm of a gradient synchronization. Raise InputError if replicas would diverge.

        For clusters with more than ``MOST_PROVED`` ranks, the algorithm is checked at ``MOST_PROVED`` ranks.
        """
        algorithm = self.find_algorithm(sync, "all_reduce", clusters, key)
        for cluster in clusters:
            if algorithm.is_decided and algorithm.has_program:
                with self.at(key), suppress(ProgramError, Undefined):
                    check_bitwise_identical(algorithm, min(cluster.world_size, MOST_PROVED))
        return algorithm

    def find_algorithm(
        self, reference: Reference | Sync, collective: str, clusters: Sequence[Cluster], key: str
    ) -> Algorithm:
        """Return the algorithm that ``reference`` names. Raise InputError if it does not support all clusters."""
        with self.at(key):
            if reference.name == NCCL and not reference.parameters:
                return _find_nccl(collective, clusters)
            if reference.name == AUTO:
                return auto(collective).with_parameters(**reference.parameters)
            parameters = {key: self._from_here(value) for key, value in reference.parameters.items()}
            algorithm = find_algorithm(reference.name, collective, self.folder).with_parameters(**parameters)
            for cluster in clusters:
                algorithm.chunks(cluster.world_size)  # raises for parameters that the world size does not allow
            return algorithm

    def _from_here(self, value: int | str) -> int | str:
        return os.path.relpath(self.folder / value) if isinstance(value, str) and ".py" in value else value


def _find_nccl(collective: str, clusters: Sequence[Cluster]) -> Algorithm:
    from simcomm.nccl.predict import COLLECTIVES  # slow to import; most scenarios do not need it

    for cluster in clusters:
        cluster.check_joined_by_nccl()
    if collective not in COLLECTIVES:
        raise InputError(f'"{NCCL}" does not support {collective}; it supports {", ".join(COLLECTIVES)}')
    return nccl(collective)
