"""How a training gets its images: what changes them at random, and who loads them while the rank computes."""

from dataclasses import dataclass

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote

PREFETCHED = 2  # batches that each loading process is ahead, unless said, as torch's DataLoader has it


@dataclass(frozen=True, kw_only=True)
class DataLoading:
    """How images are loaded, in the words of torch's DataLoader. Raises InputError for values that cannot be.

    With ``random_crop`` each image of an epoch is padded by so many pixels on each side and cut back at random, with
    ``flip`` every other one is mirrored. Which and where depends on the seed, the epoch and the image alone, so it is
    the same on any number of ranks and after a restart.

    >>> DataLoading(prefetch_factor=4)
    Traceback (most recent call last):
    collectives.errors.InputError: prefetch_factor is 4, and no process loads ahead; give num_workers too
    """

    num_workers: int = 0  # processes of each rank that load ahead; 0: the rank loads when it needs a batch
    prefetch_factor: int | None = None  # batches that each of them is ahead; None: torch's usual 2
    pin_memory: bool = False  # copy a batch to a GPU from pinned memory, beside computing
    random_crop: int = 0  # pixels of padding on each side; 0: no crop
    flip: bool = False
    verify: bool = True  # refuse a CIFAR-10 that is not as it was published

    def __post_init__(self) -> None:
        for name in ("num_workers", "random_crop"):
            check_whole_number(name, getattr(self, name), at_least=0)
        for name in ("pin_memory", "flip", "verify"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {quote(getattr(self, name))}; give True or False")
        if self.prefetch_factor is None:
            return
        check_whole_number("prefetch_factor", self.prefetch_factor, at_least=1)
        if not self.num_workers:
            raise InputError(
                f"prefetch_factor is {self.prefetch_factor}, and no process loads ahead; give num_workers too"
            )

    @property
    def prefetched(self) -> int:
        """How many batches of a rank may be there before it needs them."""
        return self.num_workers * (self.prefetch_factor or PREFETCHED)

    @property
    def loading_kind(self) -> str:
        """What of these a batch's loading time depends on, where it is not as usual, in brackets.

        >>> DataLoading(random_crop=4, num_workers=2).loading_kind, DataLoading().loading_kind
        ('[num_workers=2, random_crop=4]', '')
        """
        usual, names = DataLoading(), ("num_workers", "prefetch_factor", "pin_memory", "random_crop", "flip")
        given = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(usual, name)]
        return f"[{', '.join(given)}]" if given else ""
