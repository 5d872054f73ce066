"""Builds the site of the documentation into ``out/site``, with the settings in ``mkdocs.yml``.

    python docs/make_site.py

The pages are those of ``docs/`` and of the root, the README first. A link to what is no page is a link to a copy of
that file where it is an example, and the name alone elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "out" / "pages"
REPORTS = ROOT / "docs" / "reports"
AT_ROOT = ("DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def collect_pages(target: Path) -> list[Path]:
    """Write all pages, pictures and examples into a folder; return the pages."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "pictures", target / "pictures")
    shutil.copytree(ROOT / "examples", target / "examples")
    sources = {"index.md": ROOT / "README.md", **{name: ROOT / name for name in AT_ROOT}}
    sources |= {page.name: page for page in sorted((ROOT / "docs").glob("*.md"))}
    sources |= {f"report_{page.name}": page for page in sorted(REPORTS.glob("*.md"))}
    for name, source in sources.items():
        (target / name).write_text(_with_links(source), encoding="utf-8")
    return [target / name for name in sources]


def _with_links(source: Path) -> str:
    """Return the text of a page, its links as they are among the pages of the site."""

    def change(found: re.Match[str]) -> str:
        picture, text, link = found.groups()
        file, hash_, heading = link.partition("#")
        if not file or "://" in file:
            return found[0]
        path = (source.parent / file).resolve()
        if path == ROOT / "README.md":
            return f"{picture}[{text}](index.md{hash_}{heading})"
        for folder, copied in ((ROOT / "docs", "pictures"), (ROOT, "examples")):
            if not path.is_relative_to(folder):
                continue
            inside = path.relative_to(folder)
            if path.parent == REPORTS:
                inside = Path(f"report_{path.name}")
            is_page = path.suffix == ".md" and (folder != ROOT or path.name in AT_ROOT)
            if is_page or (inside.parts[:1] == (copied,) and path.is_file()):
                return f"{picture}[{text}]({inside}{hash_}{heading})"
        return text

    return LINK.sub(change, source.read_text(encoding="utf-8"))


def main() -> None:
    """Collect the pages and build the site; a link that leads nowhere is an error."""
    collect_pages(PAGES)
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    subprocess.run(call, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    print(f"The site: {ROOT / 'out' / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
