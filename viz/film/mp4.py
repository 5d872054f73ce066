"""Frames as an MP4, by ffmpeg: that of the system, or the one that the package imageio-ffmpeg brings."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from viz.file_types import find_ffmpeg

Pixels = npt.NDArray[np.uint8]  # [height, width, 3]

TIMEOUT = 300.0  # seconds that ffmpeg may take once it has every frame


def encode_mp4(frame: Callable[[int], Pixels], count: int, fps: float, hold: float) -> bytes:
    """Return an MP4 of ``count`` frames at ``fps`` a second, the last one shown for ``hold`` seconds.

    ``frame`` returns the pixels of the frame with a number. Raises InputError where there is no ffmpeg, or where it
    fails.
    """
    height, width, _ = frame(0).shape
    with TemporaryDirectory(prefix="ringlab-") as folder, TemporaryFile() as errors:
        film = Path(folder, "film.mp4")
        command = [
            find_ffmpeg(), "-nostdin", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
            "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart",
            str(film),
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors) as ffmpeg:
            _feed(ffmpeg, frame, [*range(count), *[count - 1] * round(hold * fps)])
        errors.seek(0)
        if ffmpeg.returncode or not film.is_file():
            last = errors.read()[-400:].decode(errors="replace").strip().rpartition("\n")[2]
            raise InputError(f"{command[0]} does not encode the film: {last or f'status {ffmpeg.returncode}'}")
        return film.read_bytes()


def _feed(ffmpeg: "subprocess.Popen[bytes]", frame: Callable[[int], Pixels], indices: list[int]) -> None:
    """Give ffmpeg one frame after the other, and end it where it takes no more or too long."""
    assert ffmpeg.stdin is not None
    try:
        for index in indices:
            ffmpeg.stdin.write(frame(index).tobytes())
        ffmpeg.stdin.close()
        ffmpeg.wait(TIMEOUT)
    except BrokenPipeError:  # it has said why
        ffmpeg.wait(TIMEOUT)
    except BaseException:
        ffmpeg.kill()
        raise
