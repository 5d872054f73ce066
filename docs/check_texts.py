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
LONG_SUBJECTS = 0.05  # largest share of subjects above LONGEST_SUBJECT: landed commits stay as they are
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


def commit_problems(root: Path = ROOT) -> Iterator[str]:
    """Yield the problems of the subjects of all commits after ``FIRST``."""
    is_known = bool(git("rev-parse", "--verify", "--quiet", f"{FIRST}^{{commit}}", root=root))
    is_shallow = git("rev-parse", "--is-shallow-repository", root=root) == ["true"]
    if not is_known and not is_shallow:
        return  # an export, or another history
    commits = git("log", "--no-merges", "--format=%h %s", *([f"{FIRST}..HEAD"] if is_known else []), root=root)
    for commit in commits:
        if ";" in commit:
            yield f'commit {commit}: the subject joins changes by ";"; make two commits'
    for commit in long_texts(commits, LONGEST_SUBJECT, LONG_SUBJECTS):
        yield f"commit {commit}: the subject is longer than {LONGEST_SUBJECT} characters"


def long_texts(lines: list[str], longest: int, share: float) -> list[str]:
    """Return the lines whose text after the first word is too long, if they are more than a share of all.

    >>> long_texts(["1a short", "2b much longer"], longest=5, share=0.4)
    ['2b much longer']
    """
    long = [line for line in lines if len(line.partition(" ")[2]) > longest]
    return long if len(long) > share * len(lines) else []


def names_of_tests(root: Path = ROOT) -> list[str]:
    """Return the names of all test functions, each with its file and line."""
    return [
        f"{path.relative_to(root)}:{node.lineno}: {node.name}"
        for path in sorted((root / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def name_problems(names: list[str]) -> Iterator[str]:
    """Yield the test names that are too long, if they are more than a share of all."""
    for name in long_texts(names, LONGEST_NAME, LONG_NAMES):
        yield f"{name} is longer than {LONGEST_NAME} characters"


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
    yield from name_problems(names_of_tests(root))
    for name in git("ls-files", *TEXTS, root=root):
        if not name.startswith(EXEMPT) and (root / name).is_file():
            yield from word_problems(name, (root / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
