"""What one GPU of each type does of a job, and by which causes all types may be wrong together.

Rates are measured by the user, or guessed from published rates and data sheets by ``simcomm.scaling.one_gpu``, whose
covariance says what is wrong alike: a job's own constant moves all types and cancels in a choice. The causes are the
columns of its Cholesky factor, so that numbers with them have this covariance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, log
from statistics import fmean

import numpy as np

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from simcomm.cluster.hardware_parts import parts
from simcomm.renting.measuring import MEASURED_SPREAD
from simcomm.renting.nodes import SERIES_GPUS, series_gpu
from simcomm.renting.uncertain import Uncertain
from simcomm.scaling.descriptions import Job, find_scaling_gpu
from simcomm.scaling.models import even_model
from simcomm.scaling.one_gpu import YOURS, Alone, guess_rates, guess_together, published

SOME_FLOPS = 1e9  # where a search for those of a sample begins


class OneGpu:
    """The rates of one GPU of each type in samples a second, with what they may be wrong by."""

    def __init__(
        self, job: Job, known: Mapping[str, float], gpus: Iterable[str], where: str = "plan.known_rates"
    ) -> None:
        """Take a user's rates and the types that are asked about, by names of the hardware catalogue.

        Raise InputError for a known rate of a GPU that there is not; ``where`` is the key that has the rates.
        """
        names = {*parts("GPU"), *SERIES_GPUS.values()}
        for name in known:
            if name not in names:
                raise InputError(f"{where}: {quote(name)} is no GPU of the catalogue; {suggest(name, names)}")
        self.job = job
        self.known = {series_gpu(name): rate for name, rate in known.items()}
        self.unknown = dict[str, str]()  # by type: why nothing can be said
        self.guessed = self._guess(sorted({series_gpu(name) for name in gpus} - self.known.keys()))

    def rate(self, gpu: str) -> Uncertain:
        """Return the rate of a type that was asked about. Raise InputError for one of which too little is known."""
        name = series_gpu(gpu)
        if name in self.known:
            return Uncertain(self.known[name], {f"one {name}": MEASURED_SPREAD})
        if name in self.unknown:
            raise InputError(self.unknown[name])
        return self.guessed[name]

    def _guess(self, names: Iterable[str]) -> dict[str, Uncertain]:
        boards = {}
        for name in names:
            try:
                boards[name] = find_scaling_gpu(name)
            except InputError as error:
                self.unknown[name] = str(error)
        if not self.known and not self.job.model.written_bytes:
            said = f"nothing is known of {self.job.model.model} but its size: measure one GPU, plan.known_rates"
            self.unknown.update(dict.fromkeys(boards, said))
            return {}
        if not boards:
            return {}
        job = self.job if self.job.model.written_bytes else self._sized()
        yours = [Alone(job, find_scaling_gpu(name), YOURS, rate) for name, rate in self.known.items()]
        asked = [Alone(job, board, YOURS) for board in boards.values()]
        rates, covariance = guess_together([*published(), *yours], asked)
        factor = np.linalg.cholesky(covariance).tolist()
        return {
            name: Uncertain(rate.rate, {f"one {other}": by for other, by in zip(boards, row, strict=True) if by})
            for name, rate, row in zip(boards, rates, factor, strict=True)
        }

    def _sized(self) -> Job:
        """Return the job of a model of unknown layers with as much work as its known rates say."""
        name = self.job.model.model
        asked = [(find_scaling_gpu(gpu), log(rate)) for gpu, rate in self.known.items()]
        job = replace(self.job, model=even_model(name, 0, SOME_FLOPS, SOME_FLOPS / 1e3))
        guessed = guess_rates(published(), [Alone(job, board, YOURS) for board, _ in asked])
        times = exp(fmean(log(rate.rate) - known for rate, (_, known) in zip(guessed, asked, strict=True)))
        return replace(self.job, model=even_model(name, 0, SOME_FLOPS * times, SOME_FLOPS / 1e3 * times))
