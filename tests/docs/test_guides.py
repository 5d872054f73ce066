"""Every command of the tutorials, of the questions of docs/get-started.md and of the templates works."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import ROOT, Ringlab
from make_site import LINK, collect_pages

from scenarios.toml_files import EXAMPLES, FOLDER

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
QUESTIONS = [title for title in SECTIONS if title.endswith("?")]
TEMPLATES = ("my-cluster", "my-training", "my-llm", "my-algorithm", "student")
ANSWERS = {  # words of the question: patterns of the output
    "language model": (r"l40s-pcie +32 +[\d.]+ \(", r"dgx-h100 +8 +zero3"),
    "NVLink": (r"cost of training +\$[\d.]+ \([\d.-]+\) +\$[\d.]+ ",),
    "own cluster": (r"cluster\.hosts",),
    "hang": (r"early exit: ranks 2-3", r"ranks 0-1 at train.py:\d+", r"fix: "),
    "ring all-reduce": (r"RIGHT", r"my_ring"),
}


def commands(text: str) -> list[list[str]]:
    lines = [line for language, block in BLOCK.findall(text) if not language for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ringlab ")]


def save_programs(text: str) -> None:
    """Write each Python program of a text into the file that its first line names."""
    for language, program in BLOCK.findall(text):
        if language == "python":
            Path(program.split()[1]).write_text(program)


def next_commands(template: str) -> list[list[str]]:
    lines = (FOLDER / EXAMPLES[template][0]).read_text().splitlines()
    calls = [line.lstrip("# ") for line in lines if line.lstrip("# ").startswith("ringlab ")]
    return [shlex.split(line, comments=True)[1:] for line in calls]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("one_server", "folder")
@pytest.mark.parametrize("guide", ["rent", "collectives", "own-algorithm"])
def test_every_command_of_a_guide_works(guide: str, ringlab: Ringlab) -> None:
    text = (ROOT / "docs" / "tutorials" / f"{guide}.md").read_text()
    save_programs(text)
    calls = commands(text)
    assert len(calls) >= 4
    for words in calls:
        done = ringlab(*words)
        assert done.status == 0, (words, done.err)


@pytest.mark.usefixtures("one_server", "folder")
@pytest.mark.parametrize("question", QUESTIONS)
def test_guide_answers_each_question_in_at_most_three_commands(question: str, ringlab: Ringlab) -> None:
    ringlab("init", "my-algorithm")
    save_programs(SECTIONS[question])
    calls = commands(SECTIONS[question])
    assert 1 <= len(calls) <= 3
    out = ""
    for words in calls:
        done = ringlab(*words)
        assert done.status == (words[0] == "virtual"), (words, done.err)
        out += done.out + done.err
    [answers] = [answers for words, answers in ANSWERS.items() if words in question]
    assert [answer for answer in answers if not re.search(answer, out)] == []


@pytest.mark.usefixtures("one_server", "folder")
@pytest.mark.parametrize("template", TEMPLATES)
def test_commands_suggested_by_a_template_run(template: str, ringlab: Ringlab) -> None:
    assert ringlab("init", template).status == 0
    tried = [words for section in SECTIONS.values() for words in commands(section)]  # by the test above
    assert next_commands(template)
    for words in next_commands(template):
        if words not in tried:
            done = ringlab(*words)
            assert done.status == (template == "student"), (words, done.out, done.err)


def test_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    pages = collect_pages(tmp_path)
    menu = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in pages if f": {page.relative_to(tmp_path)}\n" not in menu] == []
    for page in pages:
        for _, _, link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            file = link.partition("#")[0]
            assert not file or "://" in file or (page.parent / file).is_file(), (page, link)
