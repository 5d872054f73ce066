"""Which rented machines keep a training: those of which its mesh can be made, with memory enough for a batch."""

from collections.abc import Collection, Iterable, Sequence
from math import inf

from collectives.errors import InputError
from simcomm.cluster.hardware_parts import memory_bytes, parts
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.memory import check_fit
from simcomm.renting.predicting import memory_on
from simcomm.renting.quotes import Choice


def fitting_choices(choices: Sequence[Choice], job: TrainingJob) -> tuple[list[Choice], list[str]]:
    """Return the choices of which the mesh can be made and on which a batch fits, and the others in words.

    GPUs whose memory is not known are not refused. Raise InputError, with what would fit, where none is left.
    """
    known = {one.rental.gpu for one in choices} & parts("GPU").keys()
    memories = {gpu: memory_bytes(gpu) or inf for gpu in known}
    meshes, fitting, small, reason = dict[tuple[int, int], float](), list[Choice](), list[Choice](), InputError("")
    for one in choices:
        mesh = (one.gpus, one.rental.gpus)
        try:
            if mesh not in meshes:
                meshes[mesh] = memory_on(job, one)
        except InputError as error:
            meshes[mesh], reason = inf, error if mesh >= max(meshes, default=mesh) else reason
        enough = meshes[mesh] <= memories.get(one.rental.gpu, inf)
        if meshes[mesh] < inf:
            (fitting if enough else small).append(one)
    if fitting or not choices:
        return fitting, _too_small(small, {one.rental.gpu for one in fitting})
    if not small:
        raise reason  # of the most GPUs
    largest = max(small, key=lambda one: (memories[one.rental.gpu], -meshes[one.gpus, one.rental.gpus]))
    gpu = largest.rental.gpu
    check_fit(job.on(largest.gpus, largest.rental.gpus), memories[gpu], f"{gpu}, the largest GPU that is for sale")
    raise AssertionError(gpu)


def _too_small(choices: Iterable[Choice], others: Collection[str]) -> list[str]:
    """Return the GPUs of choices, with how many of them do not suffice where more or fewer do.

    >>> from simcomm.renting.rentals import read_rentals
    >>> small = [Choice(read_rentals()[place], 1, "on demand") for place in (0, 1)]
    >>> _too_small(small, set()), _too_small(small, {small[0].rental.gpu})
    (['V100 SXM2 16GB'], ['1 or 4 x V100 SXM2 16GB'])
    """
    counts: dict[str, set[int]] = {}
    for one in choices:
        counts.setdefault(one.rental.gpu, set()).add(one.gpus)
    return [f"{' or '.join(map(str, sorted(counts[gpu])))} x {gpu}" if gpu in others else gpu for gpu in sorted(counts)]
