"""Find and read scenario files, apply ``--set`` overrides to them, and list the files that ``ringlab init`` writes."""

import json
import re
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collectives.checks import check_known
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text, reason
from collectives.quoting import cut, quote, suggest
from collectives.records.model_profile import shipped_model_profiles
from collectives.removed import RENAMED_KEYS, rename_keys, warn_renamed
from collectives.units import TomlFloat

Table = dict[str, Any]


def shipped() -> dict[str, Path]:
    """Return the paths of the built-in scenarios, keyed by name. Those in ``emulated/`` are for ``--emulate``.

    >>> [name for name in shipped() if "/" not in name]
    ['dgx-h100', 'faults', 'quickstart', 'resnet34-cifar10', 'rtx4090-4x', 'star8', 'two-p5', 'two-racks']
    """
    folder = Path(__file__).parent
    paths = (*sorted(folder.glob("*.toml")), *sorted(folder.glob("emulated/*.toml")))
    return {str(path.relative_to(folder).with_suffix("")): path for path in paths}


def find(reference: str) -> Path:
    """Return the path of a built-in scenario or of a user's file. Raise InputError if there is no such file."""
    if reference in shipped():
        return shipped()[reference]
    path = Path(reference)
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise InputError(f"{reference}: no such file; {_accepted(reference)}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{reference}: {reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{reference or '.'} is a directory; {_accepted(reference)}")
    return path


def _accepted(reference: str) -> str:
    if reference in shipped_model_profiles():
        return (
            f"{reference} is a model, not a scenario; run `ringlab init llama-fsdp`, and set training.model = "
            f'"{reference}" in that file'
        )
    return f"pass a scenario file or a shipped scenario; {suggest(reference, shipped())}"


def parse(path: Path, text: str) -> Table:
    """Return the content of a TOML file. Raise InputError if ``text`` is not valid TOML."""
    try:
        return tomllib.loads(text, parse_float=TomlFloat)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer with thousands of digits
        end = f" on line {text.count(chr(10)) + 1}" if "end of document" in str(error) else ""
        raise InputError(f"{path}: invalid TOML: {error}{end}") from error


def override(table: Table, text: str) -> None:
    """Set one key of ``table``. ``text`` is ``section.key=value``, where the value is TOML or an unquoted string.

    A number in the key is an index of a list, as in ``cluster.link.8.bandwidth=1 Gbit/s``. Raise InputError if ``text``
    does not have this form, if the list has no such entry, or if a part of the key is not a table.
    """
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {cut(text)}: must be section.key=value, for example cluster.world_size=4")
    place: Any = table
    for part in parts[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else _entry(place, part, text)
    if isinstance(place, dict):
        place[parts[-1]] = _value(value.strip())
    else:
        _entry(place, parts[-1], text)  # raises if the entry does not exist
        place[int(parts[-1])] = _value(value.strip())


def _entry(place: Any, part: str, text: str) -> Any:
    if not isinstance(place, list):
        raise InputError(f"--set {cut(text)}: cannot set {quote(part)}, because {quote(place)} is not a table")
    if not (part.isdecimal() and len(part) < 10 and int(part) < len(place)):
        raise InputError(f"--set {cut(text)}: {quote(part)} is not an index of a list of {len(place)} entries")
    return place[int(part)]


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}", parse_float=TomlFloat)
    except (ValueError, RecursionError):
        return text
    return read["value"] if read.keys() == {"value"} else text


def tables(path: Path, overrides: Sequence[str] = ()) -> Table:
    """Return the tables of a scenario file after applying the overrides in order.

    Raise InputError if the file or an override is invalid.
    """
    return apply_overrides(parse(path, read_text(path, FileBytes.SCENARIO)), overrides, str(path))


TARGETS = {"plan.target_samples", "plan.target_tokens"}


def apply_overrides(table: Table, overrides: Sequence[str], where: str) -> Table:
    """Apply overrides in order to the tables of the file ``where``, rename deprecated keys, and return the tables.

    If an override sets ``plan.target_samples`` or ``plan.target_tokens``, the other key is removed, unless another
    override sets it. Raise InputError if an override is invalid, or if the old and the new name of a key are both set.
    """
    _rename(table, where)
    for text in overrides:
        override(table, _renamed(text))
        _rename(table, f"--set {cut(text)}")
    plan, stated = table.get("plan"), {text.partition("=")[0].strip() for text in overrides} & TARGETS
    if isinstance(plan, dict) and len(stated) == 1:  # an overridden target replaces the other target of the file
        (other,) = TARGETS - stated
        plan.pop(other.removeprefix("plan."), None)
    return table


def _rename(table: Table, where: str) -> None:
    rename_keys(table, RENAMED_KEYS, where)
    for what_if in what_ifs if isinstance(what_ifs := table.get("what_if"), list) else []:
        if isinstance(what_if, dict):
            rename_keys(what_if, RENAMED_KEYS, where)


def _renamed(text: str) -> str:
    key, equals, value = text.partition("=")
    what_if, key = re.fullmatch(r"(what_if\.\d+\.)?(.*)", key.strip(), re.DOTALL).groups("")  # type: ignore[union-attr]
    for old, new in RENAMED_KEYS.items():
        if f"{key}.".startswith(f"{old}."):
            warn_renamed(f"--set {cut(text)}", old, new)
            key = new + key.removeprefix(old)
    return f"{what_if}{key}{equals}{value}"


HERE = Path(__file__).parent
FOLDER = next(path for path in (HERE / "examples", HERE.parent / "examples") if path.is_dir())  # wheel or checkout
FILES = (
    "my_cluster.toml", "my_training.toml", "my_llm.toml", "my_algorithm.py", "student.py", "gpt2_xl.toml",
    "fsdp_here.toml", "llama_fsdp.toml", "llama2_70b.toml", "rent_resnet50.toml", "toy.py", "notebook.ipynb",
    "model_parallel.toml",
)  # fmt: skip
EXAMPLES: dict[str, tuple[str, ...]] = {Path(file).stem.replace("_", "-"): (file,) for file in FILES}
EXAMPLES["resnet-course"] = ("resnet_course.py", "resnet_course.toml")


def beginnings() -> dict[str, tuple[Path, ...]]:
    """Return the files that ``ringlab init`` can write, keyed by the name of the example or built-in scenario.

    >>> [path.name for path in beginnings()["llama-fsdp"]]
    ['llama_fsdp.toml']
    """
    scenarios = {name: (path,) for name, path in shipped().items() if "/" not in name}
    return {name: tuple(FOLDER / file for file in files) for name, files in EXAMPLES.items()} | scenarios


def find_beginning(name: str) -> tuple[Path, ...]:
    """Return the files that ``ringlab init NAME`` writes. Raise InputError for an unknown name."""
    examples = beginnings()
    return examples[check_known("example", name, examples)]


def describe_beginning(files: tuple[Path, ...]) -> str:
    """Return the title of an example: the ``title`` of its scenario, or the first line of another file.

    >>> describe_beginning(find_beginning("toy"))[:41]
    'The smallest data-parallel training: two '
    """
    text = files[0].read_text(encoding="utf-8")
    first = text.partition("\n")[0]
    if files[0].suffix == ".ipynb":
        first = json.loads(text)["cells"][0]["source"][0].strip()
    return first.removeprefix("title = ").strip('#" ')
