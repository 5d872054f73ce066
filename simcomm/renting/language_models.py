"""Rates of choices for language models: of the fastest mesh that fits, or of the one that is stated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from collectives.errors import InputError
from collectives.output_files import key_of
from collectives.records.environment import installed_version
from collectives.training.parallelism import Parallelism
from collectives.units import format_size
from simcomm.mesh.intervals import Uncertain
from simcomm.mesh.job import Host, TrainingJob
from simcomm.mesh.language import LanguageModel, is_expressible
from simcomm.mesh_search.devices import find_mesh_gpu
from simcomm.mesh_search.parameters import believe
from simcomm.mesh_search.runs import OwnRuns
from simcomm.mesh_search.search import FILL, FoundMeshes, search
from simcomm.renting.predicting import AnyQuestion, RateQuestion, find_gpu, scaling_node
from simcomm.renting.quotes import Choice, Rate
from simcomm.renting.rentals import Rental

WORDS = {"sync": "sync", "tensor": "tensor", "pipeline": "pipeline", "expert": "experts", "stragglers": "stragglers"}


def host_of(rental: Rental) -> Host:
    """Return a rental as a host of GPUs. Raise InputError for a GPU of which the catalogue says too little."""
    gpu = find_mesh_gpu(rental.gpu)
    is_pcie = not rental.interconnect.startswith("NV")
    nic = (rental.nic_bandwidth or 0.0) / rental.gpus
    return Host(rental.gpu, rental.gpus, nic, gpu.host_rate if is_pcie else None)


class LanguageQuestion(NamedTuple):
    """What the rate of a choice depends on; ``is_free``: the mesh is to be found; ``own`` runs on such GPUs, if any."""

    job: TrainingJob
    host: Host
    gpus: int
    is_free: bool
    own: OwnRuns | None = None

    @property
    def model(self) -> LanguageModel:
        """The job as closed forms have it, adapted to the runs."""
        return LanguageModel(self.job, self.host, believe() if self.own is None else self.own.belief)

    @property
    def key(self) -> str:
        """What tells this question, and the version of this package, from all others."""
        job = {**vars(self.job), "model": self.job.model.model, "contention": sorted(self.job.contention)}
        made = "" if self.own is None else self.own.made
        content = [installed_version("ringlab"), "language", job, self.host, self.gpus, self.is_free, made]
        return key_of(content)

    def find(self) -> FoundMeshes:
        """Return the meshes, the fastest that fits first in their order. Raise InputError where there is none."""
        model = self.model
        if not self.is_free:
            return model.stated(self.gpus, self.job.on(self.gpus, self.host.gpus).parallelism)
        return search(model.mesh_job(self.gpus, Parallelism(data=self.gpus)), model.belief)

    def answer(self) -> Rate:
        """Return the predicted rate."""
        model, found = self.model, self.find()
        number = int(found.order[0])
        step = model.of_mesh(found, number)
        seconds = sum(step.parts.values())
        rate = found.job.batch / seconds
        held = max(WORDS, key=lambda name: step.parts.get(name, 0.0))
        share = step.parts.get(held, 0.0) / seconds
        what = "compute" if share < 0.02 else f"{WORDS[held]} {share:.0%}"
        uncertain = Uncertain(rate, model.causes(found, number))
        mesh = found.searched[number].name
        return Rate(uncertain, what, rate / (self.gpus * step.alone), mesh if self.is_free else "")


@dataclass(frozen=True)
class LanguagePredicting:
    """A language model whose rates the closed forms say; ``is_free``: each choice has its own fastest mesh."""

    job: TrainingJob
    is_free: bool
    own: Mapping[str, OwnRuns] = field(default_factory=dict)  # by GPU, of the user's

    @property
    def notes(self) -> list[str]:
        """What is to be said of the rates."""
        return [f"Rates of {gpu} are adapted: {one.title}." for gpu, one in self.own.items()]

    def question(self, choice: Choice) -> AnyQuestion:
        """Return what is asked of a choice. Raise InputError for machines of which too little is known."""
        found = self._ask(choice)
        if is_expressible(self.job):
            return found
        gpu, node = find_gpu(choice.rental), scaling_node(choice.rental)
        return RateQuestion(self.job, gpu, node, choice.gpus, choice.nodes, found.model.rate)

    def _ask(self, choice: Choice) -> LanguageQuestion:
        own = self.own.get(choice.rental.gpu)
        return LanguageQuestion(self.job, host_of(choice.rental), choice.gpus, self.is_free, own)

    def predict(self, choice: Choice) -> Rate:
        """Return the rate of one choice."""
        return self.question(choice).answer()

    def memory(self, choice: Choice) -> float:
        """Return the least that the fullest GPU has to have. Raise InputError where there is no mesh."""
        question = self._ask(choice)
        if not self.is_free:
            form = self.job.on(choice.gpus, choice.rental.gpus).parallelism
            return question.model.memory(choice.gpus, form)
        return float(question.find().memory.total.min()) / FILL

    def refuse(self, choice: Choice, memory: float) -> NoReturn:
        """Raise InputError that says what a choice, the largest there is, lacks."""
        needed = self.memory(choice)
        raise InputError(
            f"batch_size {self.job.batch:.0f} does not fit into {choice.rental.gpu}, the largest GPU that is for sale: "
            f"{choice.gpus} of them need {format_size(needed)} of {format_size(memory)} each; give more in "
            "plan.most_nodes, or see what would fit with `ringlab search`"
        )
