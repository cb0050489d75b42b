"""The formats by name, and the files of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from ..backends.simulator.rates import Rates
from ..bench.files import write_whole
from . import chakra, goal, smpi
from .graph import Graph
from .schedule import scheduled

__all__ = ["CHROME", "FORMATS", "Files", "GOAL", "files_of", "in_folder", "write"]

GOAL, SMPI, CHAKRA, CHROME = "goal", "smpi", "chakra", "chrome"
FORMATS: Final = (GOAL, SMPI, CHAKRA, CHROME)
"""All formats; chrome is of a plan on the clock, the others are of a graph."""

Files = Iterable[tuple[str, str | bytes]]


def in_folder(name: str) -> bool:
    """Return True if a format has several files, in a folder."""
    return name in (SMPI, CHAKRA)


def files_of(name: str, graph: Graph, rates: Rates, about: str) -> Files:
    """Return the names and the contents of the files of a graph; GOAL's has no name.

    Raises
    ------
    ValueError
        The graph does not fit into the format.
    """
    timed, schedule = scheduled(graph, rates)
    makers: Mapping[str, Callable[[], Files]] = {
        GOAL: lambda: [("", "\n".join(goal.lines(timed, about)) + "\n")],
        SMPI: lambda: smpi.files(timed, schedule, rates),
        CHAKRA: lambda: chakra.files(timed, schedule, about),
    }
    return makers[name]()


def write(files: Files, target: Path) -> list[Path]:
    """Write files into a folder, or the file without a name to `target`; return their paths."""
    written = []
    for name, content in files:
        path = target / name if name else target
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.encode() if isinstance(content, str) else content)
        written.append(path)
    return written
