"""The programs and commands in pages of the documentation, for the tests that run them.

A page is read as its reader reads it:

- A block of Python whose first line is a comment with a name (``# name.py``) is a program. One
  without a name that has ``with xupc.init(`` is ``program.py``. A page may also name a program of
  ``examples/``.
- A block in another language whose first line is such a comment is a file, for the commands.
- Other blocks of Python are lines to add to the page's first program of xupc, inside its ``with``.
  On a page without one they are added to `PRELUDE`.
- In a block ``console`` a line ``$ command`` is a command, and what follows is its output. A line
  ``...`` stands for any lines, ``...`` inside a line for any text. After another pipe than
  ``| sort`` the output is not known.
- In other blocks without Python, lines that start with ``xupc COMMAND`` are commands.
- A block after the comment ``<!-- not run: reason -->`` is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent

from xupc.cli import COMMANDS

__all__ = ["PAGES", "PRELUDE", "Block", "Command", "Page", "matches"]

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")])
_BLOCK = re.compile(
    r"^(?P<before><!-- not run: [^\n]+ -->\n)?"
    r"(?P<in>[ ]*)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=in)```$",
    re.MULTILINE | re.DOTALL,
)
_INIT = "with xupc.init("
_NAME = re.compile(r"# (\w+\.py)\n")
_FILE = re.compile(r"# (\w+\.\w+)\n")
PRELUDE = """\
import numpy as np
from mpi4py import MPI

import xupc

with xupc.init() as team:
    T, me = xupc.THREADS, xupc.MYTHREAD
"""
_LINE = re.compile(
    r"\s*([A-Z_]+=\S+ |srun [^|]*|mpiexec -n \d+ |old/bin/|new/bin/)?xupc (-|("
    + "|".join(COMMANDS)
    + r")\b)"
)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line where it starts, whether it is to run."""

    language: str
    text: str
    line: int
    runs: bool

    @property
    def program(self) -> str:
        """The name of the program that it is; "" if it is none."""
        if self.language != "python" or not self.runs:
            return ""
        named = _NAME.match(self.text)
        return named[1] if named else "program.py" if _INIT in self.text else ""


@dataclass(frozen=True)
class Command:
    """A command of a page and the output that the page shows, or None where it shows none."""

    words: tuple[str, ...]
    output: str | None
    line: int
    in_order: bool = False  # with ``| sort``

    def shows(self, found: str) -> bool:
        """Return whether the page shows this output, or shows none."""
        if self.in_order:
            found = "".join(sorted(found.splitlines(keepends=True)))
        return not self.output or matches(self.output, found)

    @property
    def of_xupc(self) -> tuple[str, ...]:
        """The arguments of the command ``xupc``; none if it is another command."""
        if "xupc" not in self.words:
            return ()
        return self.words[self.words.index("xupc") + 1 :]

    @property
    def environment(self) -> dict[str, str]:
        """The variables in front of the command."""
        found: dict[str, str] = {}
        for word in self.words:
            if not re.match(r"[A-Z_]+=", word):
                break
            name, _, value = word.partition("=")
            found[name] = value
        return found

    @property
    def program(self) -> str:
        """The program that ``xupc run`` starts; "" if it starts none."""
        if self.of_xupc[:1] != ("run",):
            return ""
        return next((word for word in self.of_xupc if word.endswith(".py")), "")


class Page:
    """A page with its blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(PROJECT))
        self.text = path.read_text(encoding="utf-8")
        self.blocks = [
            Block(
                found["language"].strip(), _unindented(found["text"], found["in"]),
                self.text.count("\n", 0, found.start()) + 1, not found["before"],
            )
            for found in _BLOCK.finditer(self.text)
        ]  # fmt: skip

    @property
    def programs(self) -> dict[str, str]:
        """The programs of the page, by name."""
        return {block.program: block.text for block in self.blocks if block.program}

    @property
    def files(self) -> dict[str, str]:
        """The programs, and blocks in other languages that begin with a comment with a name."""
        others = ((_FILE.match(block.text), block) for block in self.blocks)
        found = {
            name[1]: block.text for name, block in others if name and block.language != "python"
        }
        return {**found, **self.programs}

    @property
    def fragments(self) -> list[Block]:
        """The blocks to add to the first program."""
        return [
            block
            for block in self.blocks
            if block.language == "python" and block.runs and not block.program
        ]

    @property
    def whole(self) -> str:
        """The first program with all fragments inside its ``with``."""
        first = next((text for text in self.programs.values() if _INIT in text), PRELUDE)
        return first + indent("".join(block.text for block in self.fragments), "    ")

    @property
    def commands(self) -> list[Command]:
        """All commands in blocks."""
        return [command for block in self.blocks for command in _commands(block)]

    @property
    def inline(self) -> list[str]:
        """The commands in the text, such as `xupc info`, with their metavariables."""
        prose = _BLOCK.sub("", self.text)
        start = re.compile(r"xupc (?!(?:has|again)\b)[a-z]")
        return [text for text in _INLINE.findall(prose) if start.match(text)]

    def anchors(self) -> set[str]:
        """The anchors of the headings, as GitHub and Sphinx make them."""
        heads = re.findall(r"^#+ (.+)$", _BLOCK.sub("", self.text), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def _unindented(text: str, space: str) -> str:
    return "".join(line.removeprefix(space) for line in text.splitlines(keepends=True))


def _commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block with the output under each."""
    if block.language == "console":
        parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        line = block.line + 1 + parts[0].count("\n")
        for part in parts[1:]:
            first, _, output = part.replace("\\\n", "").partition("\n")
            yield from _command(first, output, line)
            line += part.count("\n")
    elif block.language in ("", "bash"):
        text = block.text.replace("\\\n", "")
        for number, words in enumerate(text.splitlines(), block.line + 1):
            if _LINE.match(words):
                yield from _command(words.replace("/bin/xupc", "/bin xupc"), None, number)


def _command(text: str, output: str | None, line: int) -> Iterator[Command]:
    words = shlex.split(text, comments=True)
    in_order = words[-2:] == ["|", "sort"]
    if in_order:
        del words[-2:]
    for stop in (">", "|", ";", "&", "2>&1"):
        if stop in words:
            words, output = words[: words.index(stop)], None
    words = [word.rstrip(";") for word in words]
    if words:
        yield Command(tuple(words), output, line, in_order)


@cache
def matches(expected: str, found: str) -> bool:
    """Return whether output is what a page shows; ``...`` stands for anything."""
    parts: list[str] = []
    for line in expected.strip("\n").splitlines():
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            pieces = map(re.escape, line.rstrip().split("..."))
            parts.append("[^\n]*?".join(pieces) + r"[ ]*\n")
    return re.fullmatch("".join(parts), found.strip("\n") + "\n") is not None
