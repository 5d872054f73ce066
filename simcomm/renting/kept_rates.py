"""The file that keeps predicted rates of a plan: a line of JSON each, found again by the key of its question."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from collectives.checks import is_finite_number
from collectives.errors import InputError
from collectives.input_files import parse_json
from collectives.output_files import append_text, read_kept_lines
from collectives.quoting import quote
from collectives.records.environment import installed_version
from simcomm.renting.quotes import Rate
from simcomm.renting.uncertain import Uncertain

MOST_BYTES = 1 << 28
KEY_DIGITS = 32
MOST_MOVED = 10.0  # by a cause, of the logarithm of a rate: that is 22,000 times as much


def question_key(question: object) -> str:
    """Return the key of all that a prediction depends on, with the version of this package."""
    content = [installed_version("ringlab"), question]
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:KEY_DIGITS]


class RateFile:
    """What is in the file of predicted rates, and where more is added, each at once."""

    def __init__(self, path: Path | str) -> None:
        """Read the file if it is there. Raise InputError that names file and line for one that is not of rates."""
        self.path = Path(path)
        self.known = self._read()

    def add(self, key: str, label: str, rate: Rate) -> None:
        """Add a rate to the end of the file."""
        found = {"rate": rate.rate.median, "causes": dict(rate.rate.causes), "bottleneck": rate.bottleneck}
        line = {"key": key, "choice": label, **found, "efficiency": rate.efficiency}
        append_text(self.path, f"{json.dumps(line)}\n")
        self.known[key] = rate

    def _read(self) -> dict[str, Rate]:
        return dict(read_kept_lines(self.path, self._line, MOST_BYTES))

    def _line(self, line: str, number: int) -> tuple[str, Rate]:
        try:
            read: Any = parse_json(line)
            causes: Mapping[str, Any] = read["causes"]
            if not all(is_finite_number(by) and abs(by) <= MOST_MOVED for by in causes.values()):
                raise ValueError("causes")
            rate = Uncertain(read["rate"], {str(name): float(by) for name, by in causes.items()})
            if not (is_finite_number(read["efficiency"]) and isinstance(read["bottleneck"], str)):
                raise ValueError("efficiency")
            return str(read["key"]), Rate(rate, read["bottleneck"], float(read["efficiency"]))
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, InputError) as error:
            raise InputError(f"{self.path}, line {number}: {quote(line)} is no rate of a plan; name another") from error
