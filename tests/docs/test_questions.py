"""At most three commands answer each question of docs/get-started.md, and the commands of the templates work."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import Ringlab

from scenarios.toml_files import EXAMPLES, FOLDER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
QUESTIONS = [title for title in SECTIONS if title.endswith("?")]
TEMPLATES = ("my-cluster", "my-training", "my-llm", "my-algorithm", "student")
ANSWERS = {  # words of the question: what the last command that prints a table says
    "language model": (r"l40s-pcie +32 +0\.\d+ ", r"dgx-h100 +8 +zero3"),
    "NVLink": (r"cost of training +\$[\d.]+ \([\d.-]+\) +\$[\d.]+ ",),
    "own cluster": (r"cluster\.hosts",),
    "hang": (r"early exit: ranks 2-3", r"ranks 0-1 at train.py:\d+", r"fix: "),
    "ring all-reduce": (r"RIGHT", r"my_ring"),
}


def commands(section: str) -> list[list[str]]:
    """Return the Ringlab commands of a section."""
    lines = [line for language, block in BLOCK.findall(section) if not language for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ringlab ")]


def next_commands(template: str) -> list[list[str]]:
    """Return the commands that ``ringlab init`` recommends next."""
    lines = (FOLDER / EXAMPLES[template][0]).read_text().splitlines()
    calls = [line.lstrip("# ") for line in lines if line.lstrip("# ").startswith("ringlab ")]
    return [shlex.split(line, comments=True)[1:] for line in calls]


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize("question", QUESTIONS)
def test_question_is_answered_by_three_commands(
    question: str, ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ringlab("init", "my-algorithm")
    for language, program in BLOCK.findall(SECTIONS[question]):
        if language == "python":
            Path(program.split()[1]).write_text(program)
    calls = commands(SECTIONS[question])
    assert 1 <= len(calls) <= 3
    out = ""
    for words in calls:
        done = ringlab(*words)
        assert done.status == (words[0] == "virtual"), (words, done.err)
        out += done.out + done.err
    [answers] = [answers for words, answers in ANSWERS.items() if words in question]
    assert [answer for answer in answers if not re.search(answer, out)] == []


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize("template", TEMPLATES)
def test_template_names_commands_that_work(
    template: str, ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ringlab("init", template).status == 0
    tried = [words for section in SECTIONS.values() for words in commands(section)]  # by the test above
    assert next_commands(template)
    for words in next_commands(template):
        if words not in tried:
            done = ringlab(*words)
            assert done.status == (template == "student"), (words, done.out, done.err)
