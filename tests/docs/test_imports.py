"""Imports point one way, and only real and virtual ranks import torch."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from command_line import ROOT, run_python

MAY_IMPORT = {
    "collectives": set[str](),
    "simcomm": {"collectives"},
    "realcomm": {"collectives"},
    "viz": {"collectives"},
    "replay": {"simcomm", "realcomm", "collectives"},
    "virtual": {"planner", "replay", "simcomm", "collectives"},
    "planner": {"simcomm", "collectives"},
    "scenarios": {"simcomm", "collectives"},
    "course": {"virtual", "planner", "replay", "simcomm", "collectives"},
    "ringlab": {"course", "scenarios", "simcomm", "virtual", "planner", "replay", "realcomm", "viz", "collectives"},
}
TORCH = {"torch", "torchvision"}
WITH_TORCH = ("realcomm", "virtual", "course")
TORCH_FOLDERS = (ROOT / "replay" / "capture",)
MODULES = sorted(path for package in MAY_IMPORT for kind in ("*.py", "*.pyi") for path in (ROOT / package).rglob(kind))


@cache
def imports(path: Path, at_import: bool = False) -> frozenset[str]:
    """Return the dotted names that a module imports, except for type annotations only.

    ``at_import`` excludes imports in functions.
    """
    names = set[str]()
    for node in statements(ast.parse(path.read_text()), at_import):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def statements(node: ast.AST, at_import: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_for_typing = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not is_for_typing and not (at_import and is_function):
            yield child
            yield from statements(child, at_import)


def top(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def test_packages_import_only_allowed_packages() -> None:
    for path in MODULES:
        inner = package_of(path)
        assert top(imports(path)) & MAY_IMPORT.keys() - {inner} <= MAY_IMPORT[inner], path


def test_torch_is_imported_by_real_and_virtual_ranks_only() -> None:
    without = [p for p in MODULES if package_of(p) not in WITH_TORCH and p.parent not in TORCH_FOLDERS]
    assert [p for p in without if top(imports(p, at_import=True)) & TORCH] == []
    assert [p for p in MODULES if package_of(p) == "collectives" and top(imports(p)) & TORCH] == []


@pytest.mark.parametrize(
    "names, slow",
    [
        ("collectives", TORCH),
        ("virtual.hosting.host", TORCH),
        ("simcomm, scenarios, viz", TORCH | {"numba"}),
        ("viz.pictures, viz.perfetto, viz.player.page", {"matplotlib", "PIL"}),
        ("ringlab", {"numpy", "networkx", "pydantic", "typer", "rich"}),
        ("ringlab.cli", {"numpy", "networkx", "pydantic", "numba"} | TORCH),
        ("ringlab.scenario", {"scipy", "numba", "matplotlib", "pandas", "realcomm", "viz"}),
    ],
)
def test_import_loads_no_slow_library(names: str, slow: set[str]) -> None:
    code = f"import sys, {names}; print(*sorted({{name.partition('.')[0] for name in sys.modules}} & {slow!r}))"
    done = run_python("-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


LAUNCHING = """if True:
    import sys
    import simcomm
    from collectives import Training
    from realcomm.launching.server import _Known
    from realcomm.training import trainer
    trainer.launch, trainer.check_model = lambda *given, **named: sys.exit(), lambda training: None
    try:
        trainer.train(Training(None, model=sys.argv[1]), simcomm.this_machine(ranks=2))
    finally:
        print("torch" in sys.modules, "torchvision" in _Known.also)
"""


@pytest.mark.parametrize(("model", "output"), [("resnet18", "False True"), (f"{__file__}:build", "False False")])
def test_launcher_imports_no_torch_and_no_unused_torchvision(model: str, output: str) -> None:
    done = run_python("-c", LAUNCHING, model)
    assert (done.returncode, done.stdout.strip()) == (0, output), done.stderr


STARTED = """if True:
    import sys
    from ringlab.__main__ import main
    sys.argv = ["ringlab", *sys.argv[1:]]
    try:
        main()
    finally:
        print("MODULES", *sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "slow", "most"),
    [
        (["--help"], {"numpy", "networkx", "pydantic", "simcomm", "scenarios"}, 400),
        (["predict", "star8"], {"torch", "scipy", "numba", "matplotlib", "jinja2", "realcomm", "viz"}, 950),
    ],
    ids=["help", "predict"],
)
def test_command_imports_only_the_packages_it_needs(arguments: list[str], slow: set[str], most: int) -> None:
    done = run_python("-c", STARTED, *arguments)
    modules = done.stdout.partition("MODULES ")[2].split()
    assert modules, done.stderr
    assert not {name.partition(".")[0] for name in modules} & slow
    needless = ("simcomm.nccl", "simcomm.compiled.shortcuts", "simcomm.parallel", "numpy.ma.", "rich.progress")
    assert not [name for name in modules if name.startswith(needless)]
    assert len(modules) < most


def module_of(path: Path) -> str:
    """Return the dotted name of a module, or of its package for ``__init__.py``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def folder_of(module: str) -> str:
    """Return the package or folder of a module; a module directly in a package is a folder of its own."""
    parent = module.rpartition(".")[0]
    return parent if "." in parent else module


def circles(paths: dict[str, Path], name: Callable[[str], str]) -> list[list[str]]:
    """Return the import cycles among these modules, or among the folders to which ``name`` maps them."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, path in paths.items():
        others = {other if other in paths else other.rpartition(".")[0] for other in imports(path)}
        graph.add_edges_from((name(module), name(other)) for other in others & paths.keys() - {module})
    graph.remove_edges_from([*nx.selfloop_edges(graph)])
    return [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


@pytest.mark.parametrize("kind", ["module", "folder"])
@pytest.mark.parametrize("package", MAY_IMPORT)
def test_modules_do_not_import_each_other_in_a_cycle(package: str, kind: str) -> None:
    paths = {module_of(path): path for path in MODULES if package_of(path) == package}
    del paths[package]  # it exports what the others hold, and none of them may need it
    assert circles(paths, folder_of if kind == "folder" else str) == []


def test_import_cycle_between_folders_is_found(tmp_path: Path) -> None:
    texts = {"p.a.x": "from p.b import y", "p.b.y": "import p.c", "p.c": "def f():\n  from p.a.z import g", "p.a.z": ""}
    paths = {module: tmp_path / module for module in texts}
    for module, text in texts.items():
        paths[module].write_text(text)
    assert circles(paths, str) == []
    assert circles(paths, folder_of) == [["p.a", "p.b", "p.c"]]
