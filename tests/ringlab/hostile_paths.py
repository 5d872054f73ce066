"""Paths at which a command reads or writes: devices, pipes, links, closed folders, odd names."""

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

Target = tuple[str, "bytes | Callable[[Path], object] | None", tuple[str, ...]]


def targets(suffix: str, source: str) -> dict[str, Target]:
    """Return kinds of output paths. For each: the path, the file that exists before, and the files that may change."""
    out = f"out{suffix}"
    deep = "/".join(["deep"] * 40) + suffix
    return {
        "new file": (out, None, (out,)),
        "old file": (out, b"old", (out,)),
        "new folder": (f"new/{out}", None, ("new/", f"new/{out}")),
        "folder": (f"out{suffix}", lambda path: path.mkdir(), ()),
        "full": (out, _link("/dev/full"), ()),
        "node": (out, _make_null, ()),
        "pipe": (out, os.mkfifo, ()),
        "read pipe": (out, _make_read_pipe, ()),
        "socket": (out, _make_socket, ()),
        "link to file": (out, _link("folder/file"), ("folder/file",)),
        "link to folder": (out, _link("folder"), ()),
        "link to itself": (out, lambda path: path.symlink_to(path.name), ()),
        "link to the input": (out, _link(source), ("folder/file",)),
        "name of the input": (
            out,
            lambda path: path.hardlink_to(path.parent / source),
            (out,) if source == "folder/file" else (),
        ),
        "the input": (source if source.endswith(suffix) else f"./folder/../{source}", None, ("folder/file",)),
        "proc": (f"/proc/new{suffix}", None, ()),
        "under a file": (f"in.toml/{out}", None, ()),
        "longest name": ("n" * (255 - len(suffix)) + suffix, None, ("n" * (255 - len(suffix)) + suffix,)),
        "long path": ("p/" * 3000 + out, None, ()),
        "deep": (deep, None, (*("/".join(["deep"] * n) + "/" for n in range(1, 40)), deep)),
        "empty": ("", None, ()),
        "dots": ("..", None, ()),
        "wrong suffix": ("out.exe", None, ("out.exe",)),
        "option": (f"--{suffix}", None, (f"--{suffix}",)),
        "escapes": (f"\x1b[31m\u202e{suffix}", None, (f"\x1b[31m\u202e{suffix}",)),
        "bytes": (f"\udcff{suffix}", None, (f"\\xff{suffix}",)),
        "markup": (f"[red]{suffix}", None, (f"[red]{suffix}",)),
        "read only": (out, partial(_make_with_mode, mode=0o444, content=b"old"), (out,)),
        "closed folder": (f"closed/{out}", lambda path: path.parent.chmod(0o555), (f"closed/{out}",)),
        "new folder in a closed one": (
            f"closed/new/{out}",
            lambda path: (path.parent.rmdir(), path.parent.parent.chmod(0o555)),
            ("closed/new/", f"closed/new/{out}"),
        ),
    }


def _make_null(path: Path) -> None:
    """Create a copy of the device /dev/null, or a link to it without the required rights."""
    try:
        os.mknod(path, 0o20666, os.makedev(1, 3))
    except PermissionError:
        path.symlink_to("/dev/null")


def _make_read_pipe(path: Path) -> None:
    os.mkfifo(path)
    os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # stays open, and is not read, as long as the process of all cases


def _make_socket(path: Path) -> None:
    if len(os.fsencode(path)) < 100:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


def _make_hole(path: Path, nbytes: int) -> None:
    path.touch()
    os.truncate(path, nbytes)


def _make_with_mode(path: Path, mode: int, content: bytes = b"") -> None:
    path.write_bytes(content)
    path.chmod(mode)


def _link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


SOURCES: dict[str, tuple[str, bytes | Callable[[Path], object] | None]] = {  # kinds of input: path and content
    "pipe": ("in", os.mkfifo),
    "zero": ("in", _link("/dev/zero")),
    "stdin": ("in", _link("/dev/stdin")),
    "node": ("in", _make_null),
    "maps": ("in", _link("/proc/self/maps")),
    "folder": ("in", lambda path: path.mkdir()),
    "socket": ("in", _make_socket),
    "loop": ("in", lambda path: path.symlink_to(path.name)),
    "terabyte": ("in", partial(_make_hole, nbytes=1 << 40)),
    "70 MB": ("in", partial(_make_hole, nbytes=70 << 20)),
    "3 MB": ("in", b"a = 1\n" * 500_000),
    "unreadable": ("in", partial(_make_with_mode, mode=0o000)),
    "absent": ("in", None),
    "empty": ("in", b""),
    "deep": ("in", b"[" * 100_000),
    "number": ("in", b"9" * 10**6),
    "binary": ("in", bytes(range(256)) * 10),
    "long name": ("n" * 300, None),
    "escapes": ("\x1b[31m\u202e", b""),
    "bytes": ("\udcff", b""),
}
