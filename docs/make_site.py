"""Build the site of the documentation into ``out/site``, with the settings in ``mkdocs.yml``.

    python docs/make_site.py

The README is the first page. The pages of ``docs/`` keep their folders. DESIGN, CONTRIBUTING and CHANGELOG are next to
the README. A link to an example or a picture leads to a copy. A link to any other file becomes plain text.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "out" / "pages"
AT_ROOT = {"README.md": "index.md", **{name: name for name in ("DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")}}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def collect_pages(target: Path) -> list[Path]:
    """Write all pages, pictures and examples into a folder. Return the pages."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS / "pictures", target / "pictures")
    shutil.copytree(ROOT / "examples", target / "examples")
    written = []
    for source in [*(ROOT / name for name in AT_ROOT), *sorted(DOCS.rglob("*.md"))]:
        page = target / str(place_in_site(source))
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_with_links(source), encoding="utf-8")
        written.append(page)
    return written


def place_in_site(path: Path) -> Path | None:
    """Return the path of a file in the site, or None for a file that the site lacks."""
    if path.parent == ROOT:
        return Path(AT_ROOT[path.name]) if path.name in AT_ROOT else None
    if path.is_relative_to(DOCS) and (path.suffix == ".md" or path.parent == DOCS / "pictures"):
        return path.relative_to(DOCS)
    return path.relative_to(ROOT) if path.is_relative_to(ROOT / "examples") and path.is_file() else None


def _with_links(source: Path) -> str:
    """Return the text of a page, with links that hold in the site."""

    def change(match: re.Match[str]) -> str:
        picture, text, link = match.groups()
        file, hash_, heading = link.partition("#")
        if not file or "://" in file:
            return match[0]
        place = place_in_site((source.parent / file).resolve())
        if place is None:
            return text
        page = place_in_site(source)
        assert page is not None
        return f"{picture}[{text}]({os.path.relpath(place, page.parent)}{hash_}{heading})"

    return LINK.sub(change, source.read_text(encoding="utf-8"))


def main() -> None:
    """Collect the pages and build the site. A broken link is an error."""
    collect_pages(PAGES)
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    subprocess.run(call, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    print(f"The site: {ROOT / 'out' / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
