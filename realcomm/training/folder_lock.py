"""Lock a folder for one writer at a time."""

from pathlib import Path

from filelock import FileLock, Timeout

from collectives.errors import InputError
from collectives.input_files import reason
from collectives.output_files import check_output


def lock_folder(folder: Path, name: str, advice: str) -> FileLock:
    """Create a folder, and lock its file ``name`` until the lock is released or this process ends.

    Raise InputError if another process has locked the folder, if the folder is not writable, or if the file is a
    symbolic link. The error message ends with ``advice``.
    """
    file = folder / name
    if file.is_symlink():  # it would create or truncate another file
        raise InputError(f"{file} is a symbolic link; remove the link, or {advice}")
    check_output(file)
    lock = FileLock(file, blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InputError(f"{folder} is in use by another run; {advice}") from None
    except OSError as error:
        raise InputError(f"{folder} is not writable: {reason(error)}; {advice}") from error
    return lock
