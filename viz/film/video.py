"""Frames of an animation as a file: an animated GIF with one palette for all frames, or an MP4 by ffmpeg."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from PIL import Image

from collectives.errors import InputError

Pixels = npt.NDArray[np.uint8]  # [height, width, 3]
Codes = npt.NDArray[np.int64]  # red, green and blue in one number

EXACT, MIXED = 191, 64  # palette entries for the most frequent colours as they are, and for mixtures of the rest
UNCHANGED = EXACT + MIXED  # the transparent palette entry, through which the frame before is seen
SAMPLES = 9  # frames that the palette is made from
TIMEOUT = 300.0  # seconds that ffmpeg may take once it has every frame


def encode_gif(frame: Callable[[int], Pixels], count: int, fps: float, hold: float) -> bytes:
    """Return a GIF of ``count`` frames at ``fps`` a second, the last one shown for ``hold`` seconds, repeated forever.

    ``frame`` returns the pixels of the frame with a number, and is called several times for some.

    >>> encode_gif(lambda index: np.full((4, 4, 3), index, np.uint8), count=2, fps=10, hold=1)[:6]
    b'GIF89a'
    """
    palette = _palette(frame, count)
    pictures = _changes(frame, count, palette)
    durations = [round(100 / fps) * 10] * (count - 1) + [round(hold * 1000)]  # a GIF counts in hundredths of a second
    content = BytesIO()
    next(pictures).save(
        content, "GIF", save_all=True, append_images=pictures, duration=durations, loop=0, disposal=1,
        transparency=UNCHANGED, optimize=False,
    )  # fmt: skip
    return content.getvalue()


@dataclass(frozen=True)
class _Palette:
    """At most 255 colours: the most frequent exactly as they are, such as flat areas; mixtures for all others."""

    image: Image.Image
    exact: Codes  # sorted
    entries: npt.NDArray[np.uint8]  # of the exact ones

    def indices(self, pixels: Pixels) -> npt.NDArray[np.uint8]:
        """Return the palette entry of each pixel: its own colour where it is there, else a near one."""
        near = np.asarray(Image.fromarray(pixels).quantize(palette=self.image, dither=Image.Dither.NONE))
        codes = _codes(pixels)
        found = np.minimum(np.searchsorted(self.exact, codes), len(self.exact) - 1)
        return np.where(self.exact[found] == codes, self.entries[found], near)


def _codes(pixels: Pixels) -> Codes:
    """Return each pixel as one number."""
    red, green, blue = (pixels[..., channel].astype(np.int64) for channel in range(3))
    return red << 16 | green << 8 | blue


def _palette(frame: Callable[[int], Pixels], count: int) -> _Palette:
    """Return a palette made from the colours of some of the frames."""
    samples = np.unique(np.linspace(0, count - 1, min(SAMPLES, count)).round().astype(int))
    colours, times = np.unique(
        np.concatenate([_codes(frame(int(index))).ravel() for index in samples]), return_counts=True
    )
    by_use = colours[np.argsort(-times, kind="stable")]
    channels = np.stack([by_use >> 16, by_use >> 8 & 255, by_use & 255], axis=1).astype(np.uint8)
    exact, order = by_use[:EXACT], np.argsort(by_use[:EXACT])
    entries = np.concatenate([channels[:EXACT], _mixtures(channels[EXACT:])])
    image = Image.new("P", (1, 1))
    image.putpalette(np.resize(entries, (UNCHANGED, 3)).tobytes())
    return _Palette(image, exact[order], order.astype(np.uint8))


def _mixtures(colours: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return at most ``MIXED`` colours that are near all of these, shape [colours, 3]."""
    if not len(colours):
        return colours
    mixed = Image.fromarray(colours[np.newaxis]).quantize(MIXED).getpalette() or []
    return np.array(mixed, np.uint8).reshape(-1, 3)[:MIXED]


def _changes(frame: Callable[[int], Pixels], count: int, palette: _Palette) -> Iterator[Image.Image]:
    """Yield the first frame whole, and of each other frame the pixels that differ from the one before."""
    before: npt.NDArray[np.uint8] | None = None
    table = [*(palette.image.getpalette() or [])[: 3 * UNCHANGED], 255, 255, 255]
    for index in range(count):
        now = palette.indices(frame(index))
        picture = Image.fromarray(now if before is None else np.where(now == before, np.uint8(UNCHANGED), now))
        picture.putpalette(table)
        before = now
        yield picture


def encode_mp4(frame: Callable[[int], Pixels], count: int, fps: float, hold: float) -> bytes:
    """Return an MP4 of ``count`` frames at ``fps`` a second, the last one shown for ``hold`` seconds.

    ``frame`` returns the pixels of the frame with a number. Raises InputError where ffmpeg does not make it; what it
    says of that is on stderr.
    """
    height, width, _ = frame(0).shape
    with TemporaryDirectory(prefix="ringlab-") as folder:
        film = Path(folder, "film.mp4")
        try:
            writer = import_module("imageio_ffmpeg").write_frames(
                film, (width, height), fps=fps, quality=None, ffmpeg_log_level="error", ffmpeg_timeout=TIMEOUT,
                output_params=["-movflags", "+faststart"],
            )  # fmt: skip
            with closing(writer):
                writer.send(None)
                for index in [*range(count), *[count - 1] * round(hold * fps)]:
                    writer.send(np.ascontiguousarray(frame(index)))
            return film.read_bytes()
        except (OSError, RuntimeError) as error:
            raise InputError(f"ffmpeg does not encode the film: {str(error).strip().partition(chr(10))[0]}") from error
