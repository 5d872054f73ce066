"""The folder of torch's compiler, which torch makes in the temporary folder when a part of it is imported, and leaves.

Its optimizers and torchvision import that part, whether or not anything is compiled.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PRELOAD = "realcomm.launching.compiler_preload"  # whose import is ``import_compiler()``, to be preloaded


@contextmanager
def importing_compiler() -> Iterator[None]:
    """Within the context, have torch's compiler imported without a folder of its own being made.

    What a model compiles later is kept where torch says.

    >>> with importing_compiler():
    ...     VARIABLE in os.environ
    True
    """
    import torch  # noqa: F401 - with the environment as it is, before it is changed

    given = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = given or tempfile.gettempdir()  # it is there already
    try:
        yield
    finally:
        if given is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = given


def import_compiler() -> None:
    """Import what torch's optimizers and torchvision import of its compiler, without a folder that is left."""
    with importing_compiler():
        import torch._dynamo  # noqa: F401 - slow, and imported by them in any case
