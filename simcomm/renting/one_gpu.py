"""What one GPU of each type does of a job: measured, as a scenario says it."""

from collections.abc import Mapping

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.suggestions import suggest
from simcomm.cluster.hardware_parts import parts
from simcomm.renting.measuring import MEASURED_SPREAD
from simcomm.renting.nodes import SERIES_GPUS, series_gpu
from simcomm.renting.uncertain import Uncertain
from simcomm.scaling.descriptions import Job


class OneGpu:
    """The rates of one GPU of each type in samples a second, with what each may be wrong by."""

    def __init__(self, job: Job, known: Mapping[str, float]) -> None:
        """Raise InputError for a known rate of a GPU that there is not."""
        names = {*parts("GPU"), *SERIES_GPUS.values()}
        for name in known:
            if name not in names:
                raise InputError(f"plan.known_rates: {quote(name)} is no GPU of the catalogue; {suggest(name, names)}")
        self.job = job
        self.known = {series_gpu(name): rate for name, rate in known.items()}

    def rate(self, gpu: str) -> Uncertain:
        """Return the rate of a GPU of the hardware catalogue. Raise InputError where nothing is known."""
        name = series_gpu(gpu)
        if name not in self.known:
            raise InputError(f"plan.known_rates says nothing of {name}")
        return Uncertain(self.known[name], {f"one {name}": MEASURED_SPREAD})
