"""What stopped a job: a mistake of the program, told with ranks and lines."""

from dataclasses import dataclass
from typing import Any

from virtual.ranks.sites import Site


@dataclass(frozen=True)
class Finding:
    """A mistake: what kind of, in words, and where each rank concerned is."""

    kind: str  # "deadlock", "mismatch", "size", "raised", "exit"
    text: str  # several lines, the first of which stands alone
    where: tuple[tuple[int, Site], ...] = ()  # ranks and their lines

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        places = [{"rank": rank, "file": site.file, "line": site.line} for rank, site in self.where]
        return {"kind": self.kind, "text": self.text, "where": places}
