"""What the ranks of a training import, so that the server that they are forked from does it once."""

from collections.abc import Iterable

from collectives.training.workload import Training, is_file_reference
from realcomm.launching.compiler_folder import PRELOAD
from realcomm.launching.server import preload

_ALL = (PRELOAD, "realcomm.training.running")
_BY_DATASET = {
    "digits": ("sklearn.datasets", "sklearn.model_selection"),
    "cifar10": ("torchvision",),
    "imagefolder": ("torchvision",),
}


def preload_for(trainings: Iterable[Training]) -> None:
    """Have the server import what ranks of these trainings need, unless it runs already."""
    for training in trainings:
        preload(*_ALL, *_BY_DATASET.get(training.dataset, ()))
        if not is_file_reference(training.model):
            preload("torchvision")
