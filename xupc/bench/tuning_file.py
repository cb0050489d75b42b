"""The user's table as text: what the tuner wrote into it, and all the rest, which stays.

What the tuner knows of one place stands between two lines of comment. These sections come before
the user's own entries. Everything outside is kept as it is, comments included.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..tuning.selection import CarrierRule, Place, Rule, Table
from ..tuning.selection_file import built_in, load, parse, read, text_of
from .files import write_whole

__all__ = ["TuningFile"]

BEGIN, END = "# >>> xupc tune:", "# <<< xupc tune"
_SECTION = re.compile(rf"^{BEGIN} (.*)\n((?s:.*?))^{END}\n?", re.MULTILINE)
_VERSION = re.compile(r"""^[ \t]*["']?version["']?[ \t]*=.*\n?""", re.MULTILINE)
_NEW = (
    "# What xupc chooses where no algorithm is asked for; lies over its own table.\nversion = 1\n"
)


class TuningFile:
    """Hold the text of a user's table, which must be valid.

    Parameters
    ----------
    path
        The file, which need not exist yet.

    Raises
    ------
    ValueError
        The file exists and is not a valid table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read(path)
        if found is not None and not (found.problem or found.text.strip()):
            found = None  # an empty file, as mktemp makes them, is one to be written
        load(found)
        self.new = found is None
        self.text = self._before = _NEW if found is None else found.text
        for _, body in _SECTION.findall(self.text):
            if BEGIN in body:
                raise ValueError(f"tuning table {path}: a section of xupc tune has no end")

    @property
    def changed(self) -> bool:
        """Return whether a section was put into the table."""
        return self.text != self._before

    @property
    def rest(self) -> Table:
        """The table without the tuner's sections, over the built-in one."""
        return parse(_SECTION.sub("", self.text), str(self.path), built_in())

    def figures(self, host: str) -> Mapping[str, int]:
        """Return the tuner's figures of a host; empty without a section."""
        return self._section(f"host {host}").hosts.get(host, {})

    def rules(self, place: Place) -> Sequence[Rule]:
        """Return the tuner's rules for a place."""
        return self._section(label_of(place)).rules

    def carriers(self, place: Place) -> Sequence[CarrierRule]:
        """Return the tuner's rules for calls of the drop-in communicator at a place."""
        return self._section(_drop_in(place)).carriers

    def _section(self, label: str) -> Table:
        """Return what a section of the tuner has; an empty table without one."""
        bodies = [body for found, body in _SECTION.findall(self.text) if found == label]
        return parse("\n".join(["version = 1", *bodies]), str(self.path), built_in())

    def put(self, place: Place, rules: Sequence[Rule], remarks: Sequence[str]) -> None:
        """Replace the section of a place, or make one."""
        self._put(label_of(place), [*_comments(remarks), *map(text_of, rules)])

    def put_carriers(
        self, place: Place, rules: Sequence[CarrierRule], remarks: Sequence[str]
    ) -> None:
        """Replace the section of a place for the drop-in communicator, or make one."""
        self._put(_drop_in(place), [*_comments(remarks), *map(text_of, rules)])

    def put_host(self, host: str, figures: Mapping[str, int], remarks: Sequence[str]) -> None:
        """Replace the section with the figures of a host, or make one.

        Raises
        ------
        ValueError
            The user's own lines have such a section.
        """
        if host in self.rest.hosts:
            raise ValueError(
                f'tuning table {self.path}: [host."{host}"] stands among your own entries: '
                "expected it only in a section of xupc tune; remove it to have it measured"
            )
        lines = [f"[host.{json.dumps(host)}]", *(f"{k} = {v}" for k, v in figures.items()), ""]
        self._put(f"host {host}", [*_comments(remarks), *lines])

    def _put(self, label: str, lines: Sequence[str]) -> None:
        section = "\n".join([f"{BEGIN} {label}", *lines, END]) + "\n"
        sections = [m for m in _SECTION.finditer(self.text) if m[1] == label]
        if sections:
            start, end = sections[0].span()
        else:
            version = _VERSION.search(self.text)
            if version is None:
                raise ValueError(f"tuning table {self.path}: no line that begins with version =")
            start = end = version.end()
            section = f"\n{section}" if self.text[:start].endswith("\n") else f"\n\n{section}"
        self.text = self.text[:start] + section + self.text[end:]

    def save(self) -> Path | None:
        """Write it in one go; the old one is kept beside it, and returned."""
        path = Path(os.path.realpath(self.path))  # of a link, write what it points to
        path.parent.mkdir(parents=True, exist_ok=True)
        old = None
        if path.exists():
            old = path.with_name(f"{path.name}.old")
            old.write_bytes(path.read_bytes())
        write_whole(path, self.text.encode())
        return old


def _comments(remarks: Sequence[str]) -> list[str]:
    return [f"# {line}" for line in remarks]


def label_of(place: Place) -> str:
    """Return a place in words, as the head of its section."""
    crowded = ", oversubscribed" if place.oversubscribed else ""
    return f"{place.shape}, {place.family}, {place.transport}{crowded}"


def _drop_in(place: Place) -> str:
    return f"drop-in, {label_of(place)}"
