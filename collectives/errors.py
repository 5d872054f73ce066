"""The ways to fail: input that is refused, a program that cannot work, and a run that broke."""


class InputError(ValueError):
    """Input that cannot be used. Its message is one a user can act on; the command line ends with exit status 2."""


class Undefined(InputError):  # noqa: N818 - what the algorithm is there
    """An algorithm that does not exist for a world size. Its message says for which it does."""


class ProgramError(InputError):
    """A rank program that cannot work. Names the rank, step and operation; ``world_size`` is the one it fails at."""

    def __init__(self, message: str, world_size: int, rank: int | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.world_size, self.rank, self.step = world_size, rank, step


class RunFailed(RuntimeError):  # noqa: N818 - what happened, as in "the run failed"
    """A real run that broke: a rank died or time ran out. The command line ends with exit status 1."""
