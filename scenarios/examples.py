"""Files to begin with: examples and shipped scenarios, by name."""

import json
from pathlib import Path

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from scenarios.toml_files import shipped

HERE = Path(__file__).parent
FOLDER = next(path for path in (HERE / "examples", HERE.parent / "examples") if path.is_dir())  # installed, or a tree
EXAMPLES = {
    "gpt2-xl": ("gpt2_xl.toml",),
    "fsdp-here": ("fsdp_here.toml",),
    "llama-fsdp": ("llama_fsdp.toml",),
    "llama2-70b": ("llama2_70b.toml",),
    "rent-resnet50": ("rent_resnet50.toml",),
    "my-algorithm": ("my_algorithm.py",),
    "student": ("student.py",),
    "toy": ("toy.py",),
    "notebook": ("notebook.ipynb",),
    "model-parallel": ("model_parallel.toml",),
    "resnet-course": ("resnet_course.py", "resnet_course.toml"),
}


def beginnings() -> dict[str, tuple[Path, ...]]:
    """Return the files of each example, and of each shipped scenario that stands by itself.

    >>> [path.name for path in beginnings()["llama-fsdp"]]
    ['llama_fsdp.toml']
    """
    scenarios = {name: (path,) for name, path in shipped().items() if "/" not in name}
    return {name: tuple(FOLDER / file for file in files) for name, files in EXAMPLES.items()} | scenarios


def find_beginning(name: str) -> tuple[Path, ...]:
    """Return the files of one name. Raise InputError that suggests another."""
    found = beginnings()
    if name not in found:
        raise InputError(f"{quote(name)} is no example; {suggest(name, found)}")
    return found[name]


def describe_beginning(files: tuple[Path, ...]) -> str:
    """Return the first sentence of what the first of some files says of itself.

    >>> describe_beginning(find_beginning("toy"))[:41]
    'The smallest data-parallel training: two '
    """
    text = files[0].read_text(encoding="utf-8")
    first = text.partition("\n")[0]
    if files[0].suffix == ".ipynb":
        first = json.loads(text)["cells"][0]["source"][0].strip()
    return first.removeprefix("title = ").strip('#" ')
