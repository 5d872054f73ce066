"""What a user wants kept of a training: the folder, and what goes into it beside metrics and logs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from collectives.variables import is_first_rank
from realcomm.launching.torchrun import restarts
from realcomm.training.observing import Observer
from realcomm.watching.log_folder import LogFolder
from realcomm.watching.log_observer import LogObserver
from realcomm.watching.profiling import FOLDER, ProfileObserver, Steps
from realcomm.watching.tensorboard import TensorBoardObserver, check_tensorboard


@dataclass(frozen=True)
class Watch:
    """What is kept of each training of a run, in ``folder``: metrics and logs, curves if asked for, a profile of steps.

    Raises InputError where TensorBoard is wanted and missing.
    """

    folder: Path
    tensorboard: bool = False
    profile: Steps | None = None

    def __post_init__(self) -> None:
        if self.tensorboard:
            check_tensorboard()

    def check(self, resumes: bool) -> None:
        """Raise InputError where nothing can be kept in the folder, or another run has kept something there."""
        if is_first_rank():
            self._log_folder(resumes).check()

    @contextmanager
    def observing(self, resumes: bool) -> Iterator[list[Observer]]:
        """Hold the folder while a run lasts; return who looks on during each of its trainings. Raise InputError."""
        folder = self._log_folder(resumes)
        with folder if is_first_rank() else nullcontext():
            yield self._observers(folder)

    def _log_folder(self, resumes: bool) -> LogFolder:
        """Return the folder; a run that torchrun has started again goes on."""
        return LogFolder(self.folder, goes_on=resumes or restarts() > 0)

    def _observers(self, held: LogFolder) -> list[Observer]:
        found: list[Observer] = [LogObserver(self.folder, held.attempt, held.mended)]
        if self.tensorboard:
            found.append(TensorBoardObserver(self.folder))
        if self.profile is not None:
            found.append(ProfileObserver(self.folder, self.profile))
        return found

    def describe(self) -> str:
        """Return where to look afterwards."""
        found = f"Metrics and logs: {self.folder}"
        if self.profile is not None:
            found += f"; profile: {self.folder / FOLDER}, a folder for each sync, which `ringlab animate FOLDER/` draws"
        return found
