"""Read and write the part of protobuf's wire format that Chakra needs: varints, fields, length-prefixed messages.

Written from the description at protobuf.dev/programming-guides/encoding. Truncated and overlong messages are rejected.
"""

from collections.abc import Iterator
from typing import NamedTuple

from collectives.budget import Gigabyte, check_read

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10  # maximum bytes of a varint
WIDTHS = {FIXED64: 8, FIXED32: 4}


class WireField(NamedTuple):
    """A field of a protobuf message: its number and its value."""

    number: int
    value: int | bytes

    @property
    def whole(self) -> int:
        """The value as an integer. Raise ValueError for bytes."""
        if isinstance(self.value, bytes):
            raise ValueError(f"field {self.number} must be a number")
        return self.value

    @property
    def inner(self) -> bytes:
        """The value as bytes. Raise ValueError for a number."""
        if isinstance(self.value, int):
            raise ValueError(f"field {self.number} must be bytes")
        return self.value

    @property
    def text(self) -> str:
        """The value as text. Raise ValueError for a number, and for bytes that are not text."""
        return self.inner.decode()


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it. Raise ValueError if it does not end."""
    value = 0
    for place in range(LONGEST_VARINT):
        if at + place >= len(data):
            break
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + place + 1
    raise ValueError(f"no number at byte {at}")


def write_varint(value: int) -> bytes:
    """Return a non-negative integer as a varint."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_fields(data: bytes) -> Iterator[WireField]:
    """Yield the fields of a message. Raise ValueError if it is invalid.

    >>> list(read_fields(number_field(1, 7) + bytes_field(2, b"a")))
    [WireField(number=1, value=7), WireField(number=2, value=b'a')]
    """
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind, number = key & 7, key >> 3
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield WireField(number, value)
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in WIDTHS:
            size = WIDTHS[kind]
        else:
            raise ValueError(f"no field at byte {at}")
        if at + size > len(data):
            raise ValueError(f"the field at byte {at} has {size} bytes, but the data has only {len(data)}")
        yield WireField(number, data[at : at + size])
        at += size


def number_field(number: int, value: int) -> bytes:
    """Return a protobuf field with a non-negative integer."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a protobuf field with bytes: text, or a nested message."""
    return write_varint(number << 3 | BYTES) + write_varint(len(value)) + value


def read_delimited(data: bytes, where: object) -> Iterator[bytes]:
    """Yield length-prefixed messages. Raise ValueError for a truncated message, and TooLarge for too many messages."""
    at = number = 0
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise ValueError(f"message {number} has {size} bytes, but only {len(data) - at} are left")
        check_read(where, number + 1, Gigabyte.ENTRIES, "messages")
        yield data[at : at + size]
        at, number = at + size, number + 1
