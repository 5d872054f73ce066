"""Validate the tables of a scenario file, and describe the first error in one line."""

import json
from itertools import pairwise
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from collectives.errors import InputError
from collectives.quoting import cut, describe_accepted, suggest
from collectives.removed import KEYS, describe_removed
from scenarios.cluster_sections import describe_foreign_key, describe_missing_key, section_of
from scenarios.network_section import KINDS, ClusterSection

AnySection = TypeVar("AnySection", bound=BaseModel)


def read_section(content: dict[str, Any], where: str, section_type: type[AnySection]) -> AnySection:
    """Return ``content`` as a ``section_type``. Raise InputError with the wrong key and advice if it is invalid."""
    try:
        return section_type.model_validate(content)
    except ValidationError as error:
        problems = error.errors()
        # A misspelled key also makes the right key missing; report the misspelling.
        first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
        raise InputError(f"{where}: {_describe(first, section_type, content)}") from error


def _describe(problem: ErrorDetails, section_type: type[BaseModel], content: object) -> str:
    place = problem["loc"]
    section, key = _locate(place, section_type, content), cut(".".join(map(str, place)))
    if problem["type"] in ("extra_forbidden", "missing"):
        return _describe_key(problem["type"], section, place)
    if problem["type"] == "value_error":
        message = str(problem["ctx"]["error"])
        return f"{key}: {message}" if key else message
    accepted = describe_accepted(problem["type"], problem["msg"])
    if place[-1:] == ("gpu",) and isinstance(problem["input"], list):
        accepted += f", as all devices are alike; name the slowest GPU, or compare them with --what-if {key}=A,B"
    return f"{key} = {_shown(problem['input'])}{accepted}"


def _describe_key(problem: str, section: type[BaseModel], place: tuple[int | str, ...]) -> str:
    table, key, name = cut(".".join(map(str, place[:-1]))), cut(".".join(map(str, place))), str(place[-1])
    if issubclass(section, ClusterSection):
        if problem == "missing" and name not in KINDS:
            return f"{table}: {describe_missing_key(section, name)}"
        if problem == "extra_forbidden" and (reason := describe_foreign_key(section, name)):
            return f"{table}: {reason}"
    if problem == "missing":
        return f"{key} is missing: {section.model_fields[name].description}"
    unnumbered = ".".join(part for part in place if isinstance(part, str)).removeprefix("what_if.")
    if removed := describe_removed(KEYS, unnumbered):
        return removed
    names = section.key_names() if issubclass(section, ClusterSection) else list(section.model_fields)
    return f"unknown key {key}; {suggest(name, names)}"


def _locate(place: tuple[int | str, ...], section_type: type[BaseModel], content: object) -> type[BaseModel]:
    owner, section = section_type, section_type  # section of the last key, and section of the table at that key
    for before, part in pairwise(["", *place]):
        if before == "cluster":
            section = section_of(content)
        if isinstance(content, dict | list):
            content = dict(content if isinstance(content, dict) else enumerate(content)).get(part)
        if isinstance(part, str):
            owner = section
            section = (
                _section_in(section.model_fields[part].annotation) or section
                if part in section.model_fields
                else section
            )
    return owner


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((section for part in get_args(annotation) if (section := _section_in(part))), None)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
