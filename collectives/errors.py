"""The two ways to fail: input that is refused, and a run that broke."""


class InputError(ValueError):
    """Input that cannot be used. Its message is one a user can act on; the command line ends with exit status 2."""


class RunFailed(RuntimeError):  # noqa: N818 - what happened, as in "the run failed"
    """A real run that broke: a rank died or time ran out. The command line ends with exit status 1."""
