"""Define a data-parallel training run: its model, data, gradient synchronization, and compute time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from collectives.checks import check_bool, check_known, check_number, check_path, check_whole_number
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.spec import ITEM_BYTES
from collectives.training.gradients import FIRST_BYTES, RESNETS, STEMS, Bucket, Gradient, fill_buckets, resnet_gradients
from collectives.training.recipe import Recipe

PREFETCHED = 2  # batches that each worker loads ahead by default, as in torch's DataLoader


@dataclass(frozen=True, kw_only=True)
class DataLoading:
    """Options for loading images. Where torch's DataLoader has the option, the name is the same.

    With ``random_crop``, each side of an image is padded with this number of pixels, and the image is cropped to its
    size. ``flip`` mirrors an image with a probability of one half. Both depend only on the seed, the epoch and the
    image. Therefore, they are the same on any number of ranks and after a restart. Raise InputError for an invalid
    value.
    """

    num_workers: int = 0  # loader processes per rank; 0: the rank loads a batch when it needs one
    prefetch_factor: int | None = None  # batches that each worker loads ahead; None: torch's default, 2
    pin_memory: bool = False  # copy batches to a GPU from pinned memory, in parallel with compute
    random_crop: int = 0  # pixels of padding on each side; 0: no crop
    flip: bool = False

    def __post_init__(self) -> None:
        for name in ("num_workers", "random_crop"):
            check_whole_number(name, getattr(self, name), at_least=0)
        for name in ("pin_memory", "flip"):
            check_bool(name, getattr(self, name))
        if self.prefetch_factor is None:
            return
        check_whole_number("prefetch_factor", self.prefetch_factor, at_least=1)
        if not self.num_workers:
            raise InputError(f"prefetch_factor ({self.prefetch_factor}) requires num_workers of at least 1")

    @property
    def prefetched(self) -> int:
        """The maximum number of batches that a rank loads ahead."""
        return self.num_workers * (self.prefetch_factor or PREFETCHED)

    @property
    def loading_kind(self) -> str:
        """The non-default loading options as text, such as ``[num_workers=2]``, or "" if all are default."""
        usual, names = DataLoading(), ("num_workers", "prefetch_factor", "pin_memory", "random_crop", "flip")
        settings = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(usual, name)]
        return f"[{', '.join(settings)}]" if settings else ""


RESUME_NEWEST = "auto"  # resumes the newest complete checkpoint
DATASETS = ("digits", "cifar10", "imagefolder", "synthetic")
SHAPE = (3, 32, 32)  # shape of an image: channels, height, width
DRAWN = 1024
TO_TRAIN_ON = {"digits": 1437, "cifar10": 50_000}  # training images of data sets with a fixed size
FILES = "or FILE.py:NAME, a function of yours that returns the model"


HOOKS = ("own", "ddp")


@dataclass(frozen=True)
class Buckets:
    """Gradient buckets that are synchronized during backward. A bucket is closed as soon as it has ``mb`` MiB.

    If ``mb`` is above 1, the first bucket is closed at 1 MiB. ``hook`` selects the implementation: "own" for Ringlab's
    gradient hooks, or "ddp" for torch's DistributedDataParallel. With "ddp", the first bucket is closed at 1 MiB only
    if ``mb`` is the default.
    """

    mb: float = 25.0
    hook: str = "own"

    def __post_init__(self) -> None:
        check_number("bucket_mb", self.mb, "MiB", above=0)
        check_known("hook", self.hook, HOOKS)

    @property
    def label(self) -> str:
        """The options as text, such as ``overlap`` or ``hook=ddp, bucket_mb=10``."""
        hook = "overlap" if self.hook == "own" else f"hook={self.hook}"
        return hook if self.mb == Buckets.mb else f"{hook}, bucket_mb={self.mb:g}"


@dataclass(frozen=True)
class ComputePhases:
    """The compute time of each phase of a training step on one rank in seconds, without communication.

    ``loading`` is the time in which the rank waits for a batch before forward. Raise InputError for a negative time.

    >>> round(ComputePhases(forward=0.1, backward=0.2, optimizer=0.05, loading=0.01).total, 9)
    0.36
    """

    forward: float
    backward: float
    optimizer: float
    loading: float = 0.0

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "optimizer", "loading"):
            check_number(name, getattr(self, name), "seconds", at_least=0)

    def times(self, factor: float) -> "ComputePhases":
        return ComputePhases(*(factor * each for each in (self.forward, self.backward, self.optimizer, self.loading)))

    @property
    def total(self) -> float:
        """The sum of all phases in seconds."""
        return self.loading + self.forward + self.backward + self.optimizer


@dataclass(frozen=True, repr=False)
class Training(Recipe, DataLoading):
    """A data-parallel training run. ``Recipe`` and ``DataLoading`` define more of its fields.

    ``gradient_sync`` is an all_reduce algorithm, or None for torch's DDP. If ``buckets`` is set, gradients are
    synchronized during backward, as DDP always does. Raise InputError for an invalid value, such as an unknown model.

    >>> from collectives import find_algorithm
    >>> Training(find_algorithm("all_reduce/ring"), batch_size=64).gradient_bytes
    44726568
    """

    gradient_sync: Algorithm | None
    model: str = "resnet18"
    dataset: str = "digits"
    batch_size: int = 32  # per rank
    epochs: int = 3
    seed: int = 0
    data_folder: Path | str | None = None  # directory of cifar10 (None: synthetic images) or of an imagefolder
    download: bool = False  # download cifar10 into data_folder with torchvision
    stem: str = "imagenet"  # stem of a ResNet: 7x7 with stride 2 and pooling, or "cifar": 3x3
    classes: int = 10
    image_shape: tuple[int, int, int] = SHAPE  # shape of imagefolder and synthetic images
    images: int | None = None  # training images, plus a quarter as many held out; None: all, or DRAWN synthetic images
    parameters: int | None = None  # number of parameters of a user's model, for predictions
    compute: ComputePhases | None = None  # None: from the calibration
    checkpoints: Path | str | None = None  # directory for checkpoints, relative to the working directory
    checkpoint_every: int = 0  # steps; 0: at the end of each epoch only
    buckets: Buckets | None = None  # None: all gradients at once after backward; with torch's DDP: its default buckets

    def __post_init__(self) -> None:
        Recipe.__post_init__(self)
        DataLoading.__post_init__(self)
        sync: object = self.gradient_sync
        if sync is not None and not isinstance(sync, Algorithm):
            example = "for example find_algorithm('all_reduce/ring')"
            raise InputError(f"gradient_sync must be an Algorithm, {example}, not {quote(sync)}")
        if not is_file_reference(self.model):
            check_known("model", self.model, RESNETS, f", {FILES}")
        check_known("dataset", self.dataset, DATASETS)
        check_known("stem", self.stem, STEMS)
        for name in ("classes", "batch_size", "epochs", "images", "parameters"):
            if name not in ("images", "parameters") or getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), at_least=1)
        shape = tuple(self.image_shape) if isinstance(self.image_shape, list | tuple) else ()
        if len(shape) != 3 or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in shape):
            raise InputError(f"image_shape must be [channels, height, width], not {quote(self.image_shape)}")
        object.__setattr__(self, "image_shape", shape)
        if shape != SHAPE and self.dataset in ("digits", "cifar10"):
            raise InputError(f"image_shape must be {list(SHAPE)} for {self.dataset}, not {list(shape)}")
        if self.random_crop > min(shape[1:]):
            raise InputError(
                f"random_crop must be at most {min(shape[1:])} for images of {shape[1]} x {shape[2]}, not "
                f"{self.random_crop}"
            )
        check_bool("download", self.download)
        check_whole_number("seed", self.seed, at_least=0)
        for name in ("data_folder", "checkpoints"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        if check_whole_number("checkpoint_every", self.checkpoint_every, at_least=0) and self.checkpoints is None:
            raise InputError("checkpoint_every requires checkpoints, the directory to write to")
        buckets: object = self.buckets
        if buckets is not None and not isinstance(buckets, Buckets):
            raise InputError(f"buckets must be Buckets, or None for all gradients at once, not {quote(buckets)}")
        if self.sync_every > 1 and (self.gradient_sync is None or self.buckets is not None):
            raise InputError(
                f"sync_every ({self.sync_every}) averages weights, so it does not support gradient_sync "
                f"{quote(self.sync_name)}; use an algorithm such as 'ring' without buckets"
            )
        if self.batch_size % self.accumulate:
            raise InputError(f"batch_size ({self.batch_size}) must be a multiple of accumulate ({self.accumulate})")
        compute: object = self.compute
        if compute is not None and not isinstance(compute, ComputePhases):
            raise InputError(f"compute must be ComputePhases, or None to read a calibration, not {quote(compute)}")

    @property
    def drawn(self) -> int:
        """The number of synthetic images for training."""
        return self.images or DRAWN

    def __repr__(self) -> str:
        return f"<Training of {self.model} on {self.dataset}, gradient sync {self.sync_name}>"

    @property
    def gradient_bytes(self) -> int:
        """The size of all gradients in bytes, as float32."""
        return self.parameter_count * ITEM_BYTES["float32"]

    @property
    def parameter_count(self) -> int:
        """The number of trained parameters. Raise InputError for a user's model if ``parameters`` is not set."""
        if not is_file_reference(self.model):
            return sum(gradient.nbytes for gradient in self.gradients) // ITEM_BYTES["float32"]
        if self.parameters is None:
            raise InputError(
                f"a prediction does not execute model {quote(self.model)}, so set its number of parameters, "
                "for example parameters = 11181642"
            )
        return self.parameters

    @property
    def gradients(self) -> list[Gradient]:
        """The gradients in backward order. A user's model is approximated by a hundred gradients of equal size."""
        if not is_file_reference(self.model):
            return [*resnet_gradients(self.model, self.classes, self.stem, max(self.image_shape[1:]))]
        count, item = self.parameter_count, ITEM_BYTES["float32"]
        ends = [number * count // 100 for number in range(101)]
        return [Gradient((end - begin) * item, end / count) for begin, end in pairwise(ends)]

    def fill_buckets(self, gradients: Sequence[Gradient]) -> list[Bucket]:
        """Return the buckets into which gradients are grouped, in the given order.

        The first bucket is closed at 1 MiB. For DistributedDataParallel, this holds only if ``bucket_cap_mb`` has its
        default.

        >>> gradients = [Gradient(1 << 20, share / 4) for share in range(1, 5)]
        >>> [len(Training(None, buckets=Buckets(mb)).fill_buckets(gradients)) for mb in (2, Buckets.mb)]
        [2, 2]
        >>> [bucket.nbytes >> 20 for bucket in Training(None).fill_buckets(gradients)]
        [1, 3]
        """
        buckets = self.buckets or Buckets()
        is_torchs = self.gradient_sync is None or buckets.hook == "ddp"
        return fill_buckets(gradients, int(buckets.mb * 2**20), None if is_torchs else FIRST_BYTES)

    @property
    def program(self) -> Algorithm | None:
        """The algorithm that synchronizes the gradients, or None if torch or NCCL use their own implementation."""
        sync = self.gradient_sync
        return sync if sync is not None and sync.has_program else None

    @property
    def overlaps(self) -> bool:
        """Whether gradients are synchronized during backward. This holds for DDP, and if ``buckets`` is set."""
        return self.gradient_sync is None or self.buckets is not None

    @property
    def model_kind(self) -> str:
        """The model and its non-default options that affect compute time, such as ``resnet18[precision=bf16]``."""
        usual = Training(self.gradient_sync)
        names = ("stem", "classes", "image_shape", "precision", "accumulate", "optimizer", "sync_batch_norm")
        settings = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(usual, name)]
        return f"{self.model}[{', '.join(settings)}]" if settings else self.model

    @property
    def data_kind(self) -> str:
        """The data set and its non-default loading options, such as ``cifar10[num_workers=2]``."""
        return self.dataset + self.loading_kind

    @property
    def sync_name(self) -> str:
        """The gradient synchronization as text: ``ring``, ``ring[overlap]``, ``ring[hook=ddp]`` or ``ddp``."""
        if self.gradient_sync is None:
            is_sized = self.buckets is not None and self.buckets.mb != Buckets.mb
            return f"ddp[bucket_mb={self.buckets.mb:g}]" if self.buckets is not None and is_sized else "ddp"
        name = self.gradient_sync.label
        if self.buckets is None:
            return name
        return f"{name[:-1]}, {self.buckets.label}]" if name.endswith("]") else f"{name}[{self.buckets.label}]"


def is_file_reference(model: object) -> bool:
    """Return whether ``model`` names a function in a Python file, such as ``my.py:make_model``.

    >>> is_file_reference("my.py:build"), is_file_reference("resnet18")
    (True, False)
    """
    return isinstance(model, str) and ".py:" in model and model.partition(".py:")[2].isidentifier()


def check_training(training: object, steps: object = None) -> None:
    """Raise InputError if ``training`` is not a Training, or ``steps`` is neither a positive integer nor None."""
    if not isinstance(training, Training):
        raise InputError(f"training must be a collectives.Training, not {quote(training)}")
    if steps is not None:
        check_whole_number("steps", steps, at_least=1)
