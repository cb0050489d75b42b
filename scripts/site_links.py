"""Check the links of the built documentation site: every file and every heading must exist.

    python scripts/site_links.py FOLDER

It prints how many pages and links there are, and each link that leads nowhere. The status is 1 if
there is one. Links to other sites are counted, not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page and the places in it that links can name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element refers to, and its name."""
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key in ("id", "name") and value:
                self.places.add(value)


def broken(folder: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield the links inside a site that lead nowhere, each with its page."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if outside(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = pages.get(target)
            place = unquote(parts.fragment)
            if not target.exists() or (there and place and place not in there.places):
                yield f"{path.relative_to(folder)}: {link}"


def outside(link: str) -> bool:
    """Return whether a link leads to another site, or holds its data itself."""
    parts = urlsplit(link)
    return bool(parts.scheme or parts.netloc)


def main(folder: Path) -> int:
    """Print the counts and what is broken; return the status."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    found = list(broken(folder, pages))
    links = [link for page in pages.values() for link in page.links]
    others = sum(map(outside, links))
    print(f"pages     {len(pages):,}")
    inside = len(links) - others
    print(f"links     {inside:,} inside, {len(found)} broken; {others:,} to other sites")
    for line in found:
        print(f"  {line}")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
