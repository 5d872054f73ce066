"""``docs/check_texts.py`` reports problems of commit subjects, test names and words."""

import subprocess
from pathlib import Path

import check_texts
import pytest


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_check_texts_ignores_commits_before_its_first_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    for subject in ("Reject a negative latency", "x" * 73, "Fix a; fix b"):
        git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", subject)
    monkeypatch.setattr(check_texts, "FIRST", git(tmp_path, "rev-parse", "HEAD~1"))
    (problem,) = check_texts.commit_problems(tmp_path)
    assert problem.endswith('Fix a; fix b: the subject joins changes by ";"; make two commits')


def test_check_texts_finds_no_problems() -> None:
    assert list(check_texts.problems()) == []
