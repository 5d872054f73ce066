"""Check the texts that readers meet first: commit subjects, names of tests, and words that the project gave up.

`make lint` runs it. It checks the commits after ``FIRST``, or all commits of a shallow clone, which are newer.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIRST = "83162ea48c2129384629e276d50d94bf75c59008"  # the subjects up to this commit were not checked
LONGEST_SUBJECT = 72
LONGEST_NAME = 60
LONG_NAMES = 0.11  # largest share of test names above LONGEST_NAME
GONE = {  # words in code and pages, and what to write
    r"put aside": "held out",
}
TEXTS = ("*.md", "*.py")
EXEMPT = ("CHANGELOG.md", "docs/check_texts.py", "tests/docs/test_check_texts.py")


def git(*arguments: str, root: Path = ROOT) -> list[str]:
    """Return the output lines of git; none where git fails, as outside of a repository."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def subject_problems(subject: str) -> Iterator[str]:
    """Yield the problems of a commit's subject.

    >>> list(subject_problems("Fix a; fix b"))
    ['joins changes by ";"; make two commits']
    """
    if len(subject) > LONGEST_SUBJECT:
        yield f"has {len(subject)} characters; write at most {LONGEST_SUBJECT}"
    if ";" in subject:
        yield 'joins changes by ";"; make two commits'


def commit_problems(root: Path = ROOT) -> Iterator[str]:
    """Yield the problems of the subjects of all commits after ``FIRST``."""
    is_known = bool(git("rev-parse", "--verify", "--quiet", f"{FIRST}^{{commit}}", root=root))
    is_shallow = git("rev-parse", "--is-shallow-repository", root=root) == ["true"]
    if not is_known and not is_shallow:
        return  # an export, or another history
    for line in git("log", "--no-merges", "--format=%h %s", *([f"{FIRST}..HEAD"] if is_known else []), root=root):
        commit, _, subject = line.partition(" ")
        for problem in subject_problems(subject):
            yield f"commit {commit}: the subject {problem}: {subject}"


def test_names(root: Path = ROOT) -> list[str]:
    """Return the names of all test functions, each with its file and line."""
    return [
        f"{path.relative_to(root)}:{node.lineno}: {node.name}"
        for path in sorted((root / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def name_problems(names: list[str]) -> Iterator[str]:
    """Yield the test names that are too long, if they are more than a share of all."""
    long = [name for name in names if len(name.rpartition(" ")[2]) > LONGEST_NAME]
    if len(long) > LONG_NAMES * len(names):
        yield from (f"{name} is longer than {LONGEST_NAME} characters" for name in long)


def word_problems(path: str, text: str) -> Iterator[str]:
    """Yield the words of a text that are gone.

    >>> list(word_problems("a.md", "rows put aside"))
    ['a.md:1: write "held out", not "put aside"']
    """
    for number, line in enumerate(text.splitlines(), start=1):
        for word, better in GONE.items():
            if found := re.search(rf"\b(?:{word})\b", line, re.IGNORECASE):
                yield f'{path}:{number}: write "{better}", not "{found[0]}"'


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield every problem."""
    yield from commit_problems(root)
    yield from name_problems(test_names(root))
    for name in git("ls-files", *TEXTS, root=root):
        if not name.startswith(EXEMPT) and (root / name).is_file():
            yield from word_problems(name, (root / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
