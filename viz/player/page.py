"""The page of the player: its modules, style and data in one file that asks for nothing from anywhere.

Without a build step: the modules of ``web/`` are put one behind the other, each after those that it imports, and made
small when a page is written. A policy in the page allows this script and this style, by their hashes, and
nothing else.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import minify

from collectives.output_files import write_text
from viz.file_types import check_file
from viz.player.data import PlayedRun, export

IMPORT = re.compile(r"^import \{[^}]*\} from '\./([a-z]+)\.js';\n", re.MULTILINE)
# Of JSON, what could end its element or a line of JavaScript.
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_player(title: str, runs: Sequence[PlayedRun], path: Path | str) -> None:
    """Write a page that plays runs, up to nine on one network, as ``.html``; it works offline. Raises InputError.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message, Trace
    >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     write_player("One message", [PlayedRun(trace, "naive")], Path(folder, "one.html"))
    ...     Path(folder, "one.html").stat().st_size < 100_000
    True
    """
    path = check_file(path, "a player")
    write_text(path, render_player(title, runs))


def render_player(title: str, runs: Sequence[PlayedRun]) -> str:
    """Return the page that plays runs as HTML text. Raises InputError as ``write_player`` does."""
    script, style, body = read_sources()
    allowed = f"script-src {_digest(script)}; style-src {_digest(style)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Ringlab</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{escape(export(title, runs))}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def read_sources() -> tuple[str, str, str]:
    """Return script, style and body as they stand in the page."""
    folder = files("viz.player") / "web"
    modules = _in_order("main", {}).values()
    script = "\n".join(IMPORT.sub("", text).replace("\nexport ", "\n") for text in modules)
    style, body = ((folder / name).read_text(encoding="utf-8") for name in ("player.css", "player.html"))
    script = f"'use strict';(() => {{{script}}})();"
    return minify.string("text/javascript", script), minify.string("text/css", style), body.strip()


def _in_order(name: str, found: dict[str, str]) -> dict[str, str]:
    """Return the modules that one needs and then itself, by name."""
    text = (files("viz.player") / "web" / f"{name}.js").read_text(encoding="utf-8")
    for needed in IMPORT.findall(text):
        if needed not in found:
            _in_order(needed, found)
    found[name] = text
    return found


def escape(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand in a script element: no tag and no comment can begin, no element end.

    >>> escape({"title": "</script>"})
    '{"title":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: ESCAPES[found[0]], text)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
