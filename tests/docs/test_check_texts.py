"""``docs/check_texts.py`` reports problems of commit subjects, test names and words, in full and in shallow clones."""

import subprocess
from pathlib import Path

import check_texts
import pytest

RIGHT, LONG, JOINED = "Reject a negative latency", "x" * 73, "Fix a; fix b"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with three commits: a correct subject, a long one, and one that joins two changes."""
    folder = tmp_path / "full"
    folder.mkdir()
    git(folder, "init", "-q")
    for subject in (RIGHT, LONG, JOINED):
        git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", subject)
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_check_texts_checks_commits_after_the_first(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_texts, "FIRST", git(repository, "rev-parse", "HEAD~1"))
    (problem,) = check_texts.commit_problems(repository)
    assert problem.endswith(f'{JOINED}: the subject joins changes by ";"; make two commits')


def test_check_texts_reports_too_many_long_names() -> None:
    long = f"test_a.py:1: test_{'x' * 60}"
    assert list(check_texts.name_problems([long])) == [f"{long} is longer than 60 characters"]
    assert list(check_texts.name_problems([long, *["test_a.py:2: test_b"] * 999])) == []


def test_check_texts_finds_no_problems() -> None:
    assert list(check_texts.problems()) == []
