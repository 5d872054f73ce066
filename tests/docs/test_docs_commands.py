"""Every command on a page parses with its current options."""

import re
import shlex
from pathlib import Path

import pytest
from check_docs import pages
from command_line import ROOT

from ringlab.cli import load_command

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`(?:\$ )?(ringlab [^`]+)`(?!`)")


def commands(text: str) -> list[list[str]]:
    """Return the words of each Ringlab command in code blocks, indented code and code spans of a page."""
    text = re.sub(r" *\\\n\s*", " ", text)
    lines = [line for _, block in FENCE.findall(text) for line in block.splitlines()]
    prose = FENCE.sub("", text)
    lines += [line for line in prose.splitlines() if line.startswith("    ")] + SPAN.findall(prose)
    called = [re.search(r"(?:^|-m )ringlab (\S.*)", line.strip().removeprefix("$ ")) for line in lines]
    texts = [re.sub(r"(?<= )N\b", "2", match[1].replace("\\|", "|")) for match in called if match]
    return [shlex.split(text, comments=True) for text in texts]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_command_on_a_page_can_be_parsed(page: Path) -> None:
    for name, *arguments in commands(page.read_text(encoding="utf-8")):
        if name == "COMMAND" or name.startswith("-") or "--help" in arguments or page.name == "CHANGELOG.md":
            continue
        try:
            load_command(name).make_context(name, arguments, resilient_parsing=not arguments)
        except Exception as error:
            raise AssertionError(f"{page.relative_to(ROOT)}: ringlab {shlex.join([name, *arguments])}") from error
