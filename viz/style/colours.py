"""Colours shared by every picture, dark on light, that people with any colour vision can tell apart."""

import colorsys

INK, GREY, FAINT, PAPER = "#1b2433", "#5f6b7d", "#d9dee6", "#ffffff"
WRONG = "#c4161c"  # where a program goes wrong
PANE, BUSY = "#eef1f5", "#9aa7bb"  # an empty area; a link in use whose bandwidth is not known

# Paul Tol, "Colour schemes" (SRON/EPS/TN/09-002, 2021): "muted", in an order that keeps neighbours far apart.
_MUTED = ("#332288", "#44aa99", "#cc6677", "#88ccee", "#117733", "#ddcc77", "#882255", "#999933", "#aa4499")

# Okabe and Ito, "Color Universal Design" (2008).
PHASES = {"forward": "#56b4e9", "backward": "#0072b2", "sync": "#d55e00", "optimizer": "#009e73", "reduce": "#e69f00"}
_OTHER_PHASES = ("#cc79a7", "#f0e442", "#999999")

# Link use from idle to full; lightness falls all the way, so it also reads in grey.
USE = ("#d9dee6", "#f0cd86", "#e59a44", "#c4551d")


def chunk_colours(count: int) -> list[str]:
    """Return a colour for each of ``count`` chunks: up to nine from a fixed list, more from a gradient.

    >>> chunk_colours(2)
    ['#332288', '#44aa99']
    """
    if count <= len(_MUTED):
        return list(_MUTED[:count])
    return [_gradient(index / (count - 1)) for index in range(count)]


def _gradient(share: float) -> str:
    """Return the colour at ``share``, from 0 to 1, of a gradient from dark violet to light yellow, like viridis."""
    red, green, blue = colorsys.hls_to_rgb(0.77 - 0.62 * share, 0.28 + 0.36 * share, 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def phase_colours(names: list[str]) -> dict[str, str]:
    """Return a colour for each name of a span; forward, backward, sync, optimizer and reduce always have the same.

    >>> phase_colours(["forward", "loading"])
    {'forward': '#56b4e9', 'loading': '#cc79a7'}
    """
    unknown = [name for name in names if name not in PHASES]
    others = {name: _OTHER_PHASES[index % len(_OTHER_PHASES)] for index, name in enumerate(unknown)}
    return {name: PHASES.get(name) or others[name] for name in names}


def rgb(colour: str) -> tuple[float, float, float]:
    """Return red, green and blue of ``#rrggbb``, each from 0 to 1."""
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255


def text_colour(background: str) -> str:
    """Return black or white, whichever is easier to read on ``background``.

    Source: WCAG 2, relative luminance, without the gamma.
    """
    red, green, blue = rgb(background)
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.55 else PAPER


def use_colour(share: float) -> tuple[float, float, float]:
    """Return red, green and blue of a link of which ``share``, from 0 to 1, is in use."""
    position = min(max(share, 0.0), 1.0) * (len(USE) - 1)
    low = min(int(position), len(USE) - 2)
    first, second, part = rgb(USE[low]), rgb(USE[low + 1]), position - low
    red, green, blue = (a + (b - a) * part for a, b in zip(first, second, strict=True))
    return red, green, blue
