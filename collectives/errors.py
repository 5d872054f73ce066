"""The one exception for input that is refused."""


class InputError(ValueError):
    """Input that cannot be used. Its message is one a user can act on; the command line ends with exit status 2."""
