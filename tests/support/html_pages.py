"""HTML pages as tests read them: what stands where, whether tags are closed, and what a page would load."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("meta", "br", "hr", "img", "input", "link")
LOADING = ("src", "href", "action", "data", "poster", "xlink:href")


@dataclass
class Page(HTMLParser):
    """A page that was read.

    Attributes:
        texts: the text of each element by the names of its tags, such as ``figure title``.
        loads: what it would fetch, and scripts.
        unclosed: tags that are not closed, or closed by another one.
    """

    texts: dict[str, list[str]] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    unclosed: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []

    @classmethod
    def read(cls, text: str) -> Page:
        """Read a whole page."""
        found = cls()
        found.feed(text)
        found.close()
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag, and note what it loads."""
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in LOADING]
        self.loads += [tag] if tag in ("script", "iframe", "object", "embed", "link") else []
        self.loads += [f"{tag} style={value}" for name, value in attrs if name == "style" and "url(" in (value or "")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag that closes itself."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        if not self._open or self._open.pop() != tag:
            self.unclosed.append(f"/{tag}")

    def close(self) -> None:
        """End the page: tags that are still open are not closed."""
        super().close()
        self.unclosed += self._open

    def handle_data(self, data: str) -> None:
        """Keep the text under its last two tags, and under its last one."""
        if not data.strip() or not self._open:
            return
        if self._open[-1] == "style":
            self.loads += ["style sheet"] if "url(" in data or "@import" in data else []
        for name in {self._open[-1], " ".join(self._open[-2:])}:
            self.texts.setdefault(name, []).append(data.strip())
