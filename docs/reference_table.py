"""Write the reference: options of all commands, public Python names, and keys of scenario files."""

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from math import inf
from pathlib import Path
from textwrap import fill
from typing import Any

from page_writer import Parts, table
from pydantic import BaseModel

from collectives.training.parallelism import Parallelism
from collectives.training.workload import Training
from ringlab.cli import PURPOSES, load_command
from scenarios import cluster_sections, faults, nccl_sections, network_section, sections, training_section

MEANINGS = tomllib.loads(Path(__file__).with_name("scenario_keys.toml").read_text(encoding="utf-8"))
PACKAGES = ("ringlab", "collectives", "simcomm", "realcomm", "replay", "viz")
VALUES: dict[Any, str] = {bool: "", int: "N", float: "NUMBER"}  # of options without a metavar
SCENARIO_TABLES: dict[str, Any] = {  # by the name of their part
    "the network": network_section.NetworkSection,
    **cluster_sections.CLUSTER_SECTIONS,
    "cluster.link": cluster_sections.Link,
    "collective": sections.CollectiveSection,
    "training": training_section.TrainingSection,
    "training.compute": training_section.ComputeSection,
    "training.parallelism": Parallelism,
    "faults": faults.FaultsSection,
    "faults.rank": faults.RankSection,
    "faults.link": faults.LinkSection,
    "faults.messages": faults.MessageJitterSection,
    "faults.compute": faults.ComputeJitterSection,
    "nccl": nccl_sections.NcclSection,
    "plan": sections.PlanSection,
    "what_if": sections.WhatIfSection,
}
SORTS = {  # tables of one sort of cluster, which have a heading column
    name: f'`topology = "{name}"`' for name in cluster_sections.TOPOLOGY_SECTIONS
} | {
    "file": '`topology = "net.json"`',
    "this-machine": '`preset = "this-machine"`',
    "machine": "`preset`, a machine of `ringlab list presets`",
    "system": "`system`, a name or a table",
}


def command_line() -> str:
    """Return a section for each command: its description, and a table of its arguments and options."""
    return "\n".join(
        text
        for purpose, commands in PURPOSES.items()
        for text in (f"## {purpose}\n", *(_command(name) for name in commands))
    )


def _command(name: str) -> str:
    command = load_command(name)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    about = "\n\n".join(fill(" ".join(each.split()), 120, break_on_hyphens=False) for each in paragraphs)
    rows = [_option(each) for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    return f"### ringlab {name}\n\n{about}\n\n{table('option | meaning | default', rows)}"


def _option(option: Any) -> list[str]:
    is_argument = option.param_type_name == "argument"
    value = option.metavar or VALUES.get(option.type_descriptor.annotation, "VALUE")
    if "|" in value:  # a table cell cannot have a bar
        value = f"{{{value.replace('|', ',')}}}"
    names = value or (option.name or "").upper() if is_argument else f"{', '.join(option.opts)} {value}".strip()
    default = option.default
    is_shown = (
        getattr(option, "show_default", True)
        and default != sys.executable
        and not isinstance(default, bool)
        and not callable(default)
    )
    shown = "required" if option.required else "" if default in (None, "", (), []) or not is_shown else f"`{default}`"
    return [_cell(f"`{names}`"), _cell(getattr(option, "help", None) or ""), _cell(shown)]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def python_names() -> str:
    """Return a table of public names for each package, with the first line of their docstrings."""
    return "\n".join(f"## `{package}`\n\n{table('name | meaning', _names_of(package))}" for package in PACKAGES)


def _names_of(package: str) -> Iterator[list[str]]:
    module = import_module(package)
    stub = Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    for name in re.findall(r"^from \S+ import \w+ as (\w+)$", stub, re.MULTILINE):
        public = getattr(module, name)
        first = (inspect.getdoc(public) or "").partition("\n\n")[0]
        yield [f"`{name}{_parameters(public)}`", _cell(first)]


def _parameters(public: Any) -> str:
    """Return the parameters of a function, without types and defaults; nothing for anything else."""
    if not inspect.isfunction(public):
        return ""
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return f"({', '.join(kinds.get(p.kind, '') + p.name for p in inspect.signature(public).parameters.values())})"


def scenario_table(name: str) -> str:
    """Return the keys of a table of a scenario file, and defaults. Raise KeyError if a key has no meaning."""
    return table("key | meaning | default", _keys_of(name))


def clusters() -> str:
    """Return the keys of each sort of cluster that not every network has."""
    rows = [[title, *row] for name, title in SORTS.items() for row in _keys_of(name) or [["", "no other keys", ""]]]
    return table("sort | key | meaning | default", rows)


def _keys_of(name: str) -> list[list[str]]:
    defaults, meanings = _defaults(name), MEANINGS[name]
    if left := meanings.keys() ^ defaults.keys():
        raise KeyError(f"{name} in scenario_keys.toml and in the models differ: {', '.join(sorted(left))}")
    return [[f"`{key}`", _cell(meanings[key]), defaults[key]] for key in meanings]


def _defaults(name: str) -> dict[str, str]:
    form = SCENARIO_TABLES[name]
    if not issubclass(form, BaseModel):
        return {field.name: _default(field.default) for field in fields(form)}
    defaults = {
        key: "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        for key, field in form.model_fields.items()
    }
    if name == "training":  # keys that a scenario leaves out have the defaults of a run
        run = {field.name: field.default for field in fields(Training) if field.default is not MISSING}
        defaults |= {key: _default(run[key]) for key in defaults.keys() & run.keys()}
        defaults["global_batch_size"] = defaults["checkpoints"] = defaults["checkpoint_every"] = ""
    if name in cluster_sections.CLUSTER_SECTIONS:
        shared: Mapping[str, Any] = network_section.NetworkSection.model_fields
        keys_of_page = (
            form.__annotations__.keys() if name in ("this-machine", "system") else defaults.keys() - shared.keys()
        )
        defaults = {key: defaults[key] for key in defaults if key in keys_of_page and key not in network_section.KINDS}
    return defaults


def _default(value: object) -> str:
    if value in (None, "", inf) or isinstance(value, list | tuple | dict | BaseModel) or callable(value):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


PARTS: Parts = {
    "docs/reference/command-line.md": {"commands": command_line},
    "docs/reference/python.md": {"names": python_names},
    "docs/reference/scenario.md": {
        "sorts of cluster": clusters,
        **{
            name: (lambda name=name: scenario_table(name))
            for name in SCENARIO_TABLES
            if name not in SORTS | {"link": 0}
        },
    },
}
