"""The file that keeps what a sweep has predicted: a line of JSON each, found again by the key of its question."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from collectives.checks import is_finite_number
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json
from collectives.output_files import append_text, read_kept_lines
from collectives.quoting import quote
from collectives.records.environment import installed_version
from collectives.request import Request
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import Trouble

KEY_DIGITS = 32

Question = dict[str, Any]


def describe_questions(
    clusters: Sequence[Cluster], requests: Sequence[Request], each: int, trouble: Trouble
) -> list[Question]:
    """Return of every request what is written beside its seconds; ``each`` requests are for one cluster.

    The key is a hash of all that the answer depends on: the cluster with every node and link, the program, the trouble,
    and the version of this package. A routing policy of your own is known by its name only.
    """
    world = {"version": installed_version("ringlab"), "trouble": asdict(trouble)}
    digests = [_digest({**world, "cluster": describe_cluster(cluster)}) for cluster in clusters]
    programs: dict[int, str] = {}
    questions = list[Question]()
    for number, request in enumerate(requests):
        algorithm = request.algorithm
        if id(algorithm) not in programs:
            source = algorithm.source.read_text(encoding="utf-8") if algorithm.source is not None else ""
            programs[id(algorithm)] = f"{algorithm.full_name} {source}"
        asked = {"bytes": request.nbytes, "dtype": request.dtype, "op": request.op, "root": request.root}
        key = _digest([digests[number // each], programs[id(algorithm)], asked])
        cluster = clusters[number // each]
        told = {"algorithm": algorithm.full_name, "cluster": cluster.title, "ranks": cluster.world_size}
        questions.append({"key": key, **told, **asked})
    return questions


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:KEY_DIGITS]


def describe_cluster(cluster: Cluster) -> dict[str, object]:
    """Return all that predictions on a cluster depend on, as JSON has it."""
    graph = cluster.graph
    return {
        "nodes": [[node, sorted(data.items())] for node, data in graph.nodes(data=True)],
        "links": [[src, dst, sorted(data.items())] for src, dst, data in graph.edges(data=True)],
        "hosts": cluster.hosts,
        "sharing": cluster.sharing,
        "transport": asdict(cluster.transport) if cluster.transport is not None else None,
        "routing": _policy_name(cluster.routing),
    }


def _policy_name(routing: Any) -> object:
    if isinstance(routing, partial):
        keywords = {key: _policy_name(value) for key, value in routing.keywords.items()}
        return [_policy_name(routing.func), [_policy_name(value) for value in routing.args], keywords]
    return f"{routing.__module__}.{routing.__qualname__}" if callable(routing) else routing


class SweepFile:
    """What is in the file of the questions of a sweep, and where more is added."""

    def __init__(self, path: Path | str, questions: Sequence[Question]) -> None:
        """Read the file if it is there. Raise InputError that names file and line for one that is not of a sweep."""
        self.path, self._questions = Path(path), questions
        known = self._read()
        self.known = [known.get(question["key"], math.nan) for question in questions]

    def add(self, places: Sequence[int], seconds: Sequence[float]) -> None:
        """Add predictions, of the questions at these places, to the end of the file at once."""
        lines = (
            json.dumps({**self._questions[place], "seconds": None if math.isinf(one) else one})
            for place, one in zip(places, seconds, strict=True)
        )
        append_text(self.path, "".join(f"{line}\n" for line in lines))

    def _read(self) -> dict[str, float]:
        return dict(read_kept_lines(self.path, self._line, FileBytes.SWEEP))

    def _line(self, line: str, number: int) -> tuple[str, float]:
        try:
            read = parse_json(line)
        except (ValueError, RecursionError):
            read = None
        fields: Mapping[str, Any] = read if isinstance(read, Mapping) else {}
        key, seconds = fields.get("key"), fields.get("seconds", "")
        is_time = seconds is None or (is_finite_number(seconds) and seconds >= 0)
        if not isinstance(key, str) or not is_time:
            raise InputError(f"{self.path}, line {number}: {quote(line)} is no prediction of a sweep; name another")
        return key, math.inf if seconds is None else float(seconds)
