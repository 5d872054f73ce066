"""How the processes talk: a frame is two lengths, a header as JSON, and bytes. Nothing in it is ever executed."""

import json
import os
import struct
from typing import Any

LENGTHS = struct.Struct("!IQ")  # of the header and of the bytes that follow it
LONGEST_HEADER, LONGEST_BODY = 1 << 26, 1 << 30
Frame = tuple[dict[str, Any], bytes]


class BadFrame(ValueError):  # noqa: N818 - what it is
    """Bytes that are no frame."""


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame as bytes.

    >>> unpack(pack({"do": "load"}, b"abc"))
    ({'do': 'load'}, b'abc')
    """
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def total_length(start: bytes | bytearray) -> int | None:
    """Return how many bytes the frame that begins so has; None before that is known. Raises BadFrame.

    >>> total_length(pack({}, b"abc"))
    17
    """
    if len(start) < LENGTHS.size:
        return None
    header, body = LENGTHS.unpack_from(start)
    if header > LONGEST_HEADER or body > LONGEST_BODY:
        raise BadFrame(f"lengths {header} and {body}")
    return LENGTHS.size + int(header) + int(body)


def unpack(frame: bytes | bytearray) -> Frame:
    """Return the header and the bytes of a whole frame. Raises BadFrame."""
    if total_length(frame) != len(frame):
        raise BadFrame(f"{len(frame)} bytes")
    header_length, _ = LENGTHS.unpack_from(frame)
    end = LENGTHS.size + header_length
    try:
        header = json.loads(frame[LENGTHS.size : end])
    except (ValueError, RecursionError) as error:
        raise BadFrame("its header is no JSON") from error
    if not isinstance(header, dict):
        raise BadFrame("its header is no object")
    return header, bytes(frame[end:])


def write_all(file: int, content: bytes) -> None:
    """Write all bytes to a file descriptor. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def read_frame(file: int) -> Frame | None:
    """Return the next frame of a file descriptor; None at its end. Raises BadFrame and OSError."""
    start = bytearray()
    length: int | None = LENGTHS.size
    while length is None or len(start) < length:
        wanted = LENGTHS.size if length is None else length
        chunk = os.read(file, min(wanted - len(start), 1 << 20))
        if not chunk:
            return None
        start += chunk
        length = total_length(start) or LENGTHS.size
    return unpack(start)
