"""Check the texts: commit subjects, names of tests, plain English, and words that the project gave up.

`make lint` runs it; ``--measures`` prints the numbers. It checks the commits after ``FIRST``, or all commits of a
shallow clone, which are newer.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

from check_docs import PACKAGES

ROOT = Path(__file__).parent.parent
FIRST = "d5d6cab3f3ccb82679a6d0200e92ffd98c1363b8"  # the subjects up to this commit were not checked
LONGEST_SUBJECT = 72
LONG_SUBJECTS = 0.05  # largest share of subjects above LONGEST_SUBJECT: landed commits stay as they are
LONGEST_NAME = 60
LONG_NAMES = 0.02  # largest share of test names above LONGEST_NAME
GONE = {  # words in code and pages, and what to write
    "described systems?": "system description",
    "early end": "early exit",
    "for ever": "forever",
    "put aside": "held out",
    "seen by the fit": "in the training set",
    "time models?": "performance model",
    "unless (?:given|said|stated)": "default: ...",
}
ODD = re.compile(  # words and turns that the manuals of PyTorch, uv and httpx do without
    r"\b(?:besides?|whom|meanwhile|mend(?:s|ed)?|hitherto|thereby|told|tells? of|so many|so often|"
    r"unless (?:given|said)|(?:is|are|was|were|be) no\b(?! (?:longer|more))|of (?:its|their|one's) own|ours|theirs|"
    r"what (?:is|are|was|were|it|they|each|a|the|one|no|none|has|have|comes|goes|does|ranks|others?)|all that|those of|"
    r"that of|comes? to its end|goes? on|stands? (?:for|still|out)|has to do with|in turns?|as (?:it|they) stands?)\b",
    re.IGNORECASE,
)
LIMITS = {  # measure: least, most
    "you and your in pages, per 10,000 words": (60, inf),
    "odd turns in pages, per 10,000 words": (0, 12),
    "odd turns in docstrings, per 10,000 words": (0, 12),
    "odd turns in errors, per 10,000 words": (0, 12),
    "sentences over 30 words in pages, %": (0, 12),
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
            if match := re.search(rf"\b(?:{word})\b", line, re.IGNORECASE):
                yield f'{path}:{number}: write "{better}", not "{match[0]}"'


def page_texts(root: Path = ROOT) -> list[str]:
    """Return the sentences of the pages, without reports, code, tables and headings."""
    paths = [path for path in (root / "docs").rglob("*.md") if path.parent.name != "reports"]
    texts = []
    for path in (*paths, root / "README.md", root / "CONTRIBUTING.md", root / "DESIGN.md"):
        text = re.sub(r"```.*?```|<!--.*?-->", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        prose = "\n".join(line for line in text.split("\n") if not line.startswith(("|", "    ", "#", "!")))
        texts.append(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "CODE", prose)))
    return texts


def code_texts(root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Return the docstrings of all packages, and the constant texts of their InputErrors."""
    docstrings, errors = [], []
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstrings.append(ast.get_docstring(node) or "")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "InputError":
                errors += [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return docstrings, [text for text in errors if isinstance(text, str)]


def measures(root: Path = ROOT) -> dict[str, float]:
    """Return the numbers of ``LIMITS``."""
    pages = page_texts(root)
    docstrings, errors = code_texts(root)
    lengths = [len(sentence.split()) for text in pages for sentence in re.split(r"(?<=[.!?])\s+", text)]
    numbers = [
        _per_10000(re.compile(r"\byou(?:r|rs)?\b", re.IGNORECASE), pages),
        *(_per_10000(ODD, texts) for texts in (pages, docstrings, errors)),
        100 * sum(length > 30 for length in lengths) / sum(length > 2 for length in lengths),
    ]
    return dict(zip(LIMITS, numbers, strict=True))


def _per_10000(words: re.Pattern[str], texts: list[str]) -> float:
    return 1e4 * sum(len(words.findall(text)) for text in texts) / sum(len(text.split()) for text in texts)


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield every problem."""
    yield from commit_problems(root)
    for name, number in measures(root).items():
        least, most = LIMITS[name]
        if not least <= number <= most:
            yield f"{name}: {number:.1f}, must be {least} to {most}"
    yield from name_problems(names_of_tests(root))
    for name in git("ls-files", *TEXTS, root=root):
        if not name.startswith(EXEMPT) and (root / name).is_file():
            yield from word_problems(name, (root / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    if "--measures" in sys.argv:
        print(*(f"{number:8.1f}  {name}" for name, number in measures().items()), sep="\n")
        sys.exit()
    messages = list(problems())
    print(*messages, sep="\n", end="\n" if messages else "")
    sys.exit(bool(messages))
