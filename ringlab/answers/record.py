"""What all answers share: dataclasses that turn into plain JSON."""

from dataclasses import fields
from typing import Any

SCHEMA_VERSION = 2  # of every answer's JSON; raised when a key changes


class Record:
    """Base of the dataclasses that answers are made of."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON; a field whose default is None is left out while it is None."""
        found = {}
        for one in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                found[one.name] = to_plain(value)
        return found


def shorten(value: Any) -> Any:
    """Return plain JSON with seven significant digits of each number that is no whole one: no measurement has more.

    >>> shorten({"time_s": 0.012345678912, "bytes": 123456789})
    {'time_s': 0.01234568, 'bytes': 123456789}
    """
    if isinstance(value, dict):
        return {key: shorten(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shorten(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def to_plain(value: Any) -> Any:
    """Return ``value`` as what JSON knows: records and named tuples as dicts, sequences as lists."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    return value
