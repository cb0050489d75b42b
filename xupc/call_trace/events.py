"""Write trace events, the JSON that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["TraceEvents"]


class TraceEvents:
    """Events in the order in which they are added; times are in ns.

    A process has tracks. A slice is a bar on a track; slices inside a slice lie within it in time.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._arrows = 0

    def process(self, process: int, name: str) -> None:
        """Name a process."""
        self._name("process", process, 0, name, process)

    def track(self, process: int, track: int, name: str, order: int) -> None:
        """Name a track, and give its place among those of its process."""
        self._name("thread", process, track, name, order)

    def _name(self, what: str, process: int, track: int, name: str, order: int) -> None:
        for event, args in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
            self._events.append(
                {"ph": "M", "name": f"{what}_{event}", "pid": process, "tid": track, "args": args}
            )

    def slice(
        self, place: tuple[int, int], name: str, begin: float, ns: float, kind: str,
        args: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Add a slice on a place (process, track)."""
        event = {"ph": "X", "name": name, "cat": kind, **self._at(place, begin), "dur": ns / 1000}
        self._events.append({**event, "args": dict(args)} if args else event)

    def arrow(
        self, name: str, begin: tuple[tuple[int, int], float], end: tuple[tuple[int, int], float]
    ) -> None:
        """Add an arrow between two slices, each found by its place and a time within it."""
        self._arrows += 1
        event = {"name": name, "cat": name, "id": self._arrows}
        self._events.append({"ph": "s", **event, **self._at(*begin)})
        self._events.append({"ph": "f", "bp": "e", **event, **self._at(*end)})

    @staticmethod
    def _at(place: tuple[int, int], ns: float) -> dict[str, Any]:
        return {"pid": place[0], "tid": place[1], "ts": ns / 1000}

    def lines(self, more: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the file, with more keys beside the events."""
        yield '{"displayTimeUnit": "ns",\n'
        for key, value in (more or {}).items():
            yield f"{json.dumps(key)}: {json.dumps(value)},\n"
        yield '"traceEvents": ['
        for i, event in enumerate(self._events):
            yield (",\n" if i else "\n") + json.dumps(event)
        yield "\n]}\n"
