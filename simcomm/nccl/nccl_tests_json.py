"""Read the JSON that nccl-tests writes with ``-J FILE``: of each process only the first device is listed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.strict_json import parse_json
from simcomm.nccl.nccl_tests_rows import (
    Device,
    NcclTestsRun,
    PrintedRow,
    Side,
    check_groups,
    check_outcome,
    check_row,
    collective_of,
    make_run,
    side_of,
    version_of,
)
from simcomm.nccl.tables import Row


def read_json(path: Path, text: str, collective: str | None) -> NcclTestsRun:
    """Return the run of a file that -J wrote. Raise InputError."""
    try:
        content = parse_json(text, parse_constant=lambda name: name)
    except (ValueError, RecursionError) as error:  # ValueError: also a whole number of thousands of digits
        raise InputError(f"{path}: not JSON: {error}") from error
    config = _get(path, content, "config", dict)
    devices = [_read_device(path, one) for one in _get(path, config, "devices", list)]
    check_groups(path, devices)
    per_process = _get(path, config, "nthreads", int) * _get(path, config, "ngpus", int)
    ranks = len(devices) * per_process
    if not 1 <= ranks <= 1_000_000:
        raise InputError(f"{path}: {len(devices)} devices with {per_process} GPUs each are no ranks")
    arguments = _get(path, content, "args", list)
    named = collective_of(f"{path}: args", str(arguments[0])) if arguments else None
    if "out_of_bounds" in content:
        _check_outcome(path, content)
    rows = _read_results(path, text, _get(path, content, "results", list), named or collective or "all_reduce", ranks)
    version = content.get("nccl_version")
    return make_run(rows, devices, ranks, version_of(version) if isinstance(version, int) else None)


def _check_outcome(path: Path, content: Mapping[str, Any]) -> None:
    outcome = _get(path, content, "out_of_bounds", dict)
    count, okay = _get(path, outcome, "count", int), outcome.get("okay")
    check_outcome(f"{path}: out_of_bounds", str(count) if okay in (True, "true") else f"{count} (okay = {okay!r})")


def _read_results(path: Path, text: str, results: list[Any], collective: str, ranks: int) -> list[Row]:
    """Return the rows, each named by its number, and by its line where the file has several."""
    lines = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r'"size"\s*:', text)]
    rows = []
    for index, result in enumerate(results):
        line = f"line {lines[index]}: " if len(lines) == len(results) else ""
        rows.append(_read_result(f"{path}: {line}result {index + 1}", result, collective, ranks))
    return rows


def _read_device(path: Path, device: object) -> Device:
    keys = (("rank", int), ("group", int), ("pid", int), ("hostname", str), ("device_info", str))
    return Device(*(_get(path, device, key, kind) for key, kind in keys))


def _read_result(where: str, result: object, collective: str, ranks: int) -> Row:
    size, count = (_get(where, result, key, int) for key in ("size", "count"))
    dtype, root = (_get(where, result, key, str) for key in ("type", "root"))
    assert isinstance(result, dict)
    sides = [
        _read_side(f"{where}: {key}", key, result[key])
        for key in ("out_of_place", "in_place")
        if result.get(key) is not None
    ]
    if not sides:
        raise InputError(f"{where}: neither out_of_place nor in_place has figures")
    return check_row(where, collective, PrintedRow(str(size), str(count), dtype, root.strip(), tuple(sides)), ranks)


def _read_side(where: str, name: str, body: object) -> Side:
    if isinstance(body, Mapping) and "cpu_time" in body:
        raise InputError(f"{where}: cpu_time says how long the launch took, not the collective; give a run without -C")
    figures = {
        column: _printed(_get(where, body, key, (float, int)))
        for column, key in (("time", "time"), ("algbw", "alg_bw"), ("busbw", "bus_bw"))
    }
    assert isinstance(body, Mapping)
    wrong = body.get("nwrong")
    return side_of(name, {**figures, "#wrong": "N/A" if wrong is None else str(wrong)})


def _printed(value: float) -> str:
    """Return a number as nccl-tests writes it into JSON: with six decimals."""
    return f"{value:.6f}"


def _get(where: object, content: object, key: str, kind: Any) -> Any:
    if not isinstance(content, Mapping) or key not in content:
        raise InputError(f"{where}: {key!r} is missing; give what nccl-tests wrote with -J")
    value = content[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: {key} = {value!r} is not what nccl-tests writes")
    return value
