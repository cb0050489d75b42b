"""The lines of a program at which calls take most time, and the threads that they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .join import Total, Trace

__all__ = ["Line", "as_data", "costliest", "rendered"]

MOST_CAUSES = 3
MOST_ELSEWHERE = 5  # kinds of calls that are not in a trace


@dataclass
class Line:
    """The calls at one line of a program, of all threads; times in ns."""

    line: str
    calls: int = 0
    ns: int = 0
    waited: int = 0
    longest: int = 0
    nbytes: int = 0
    names: dict[str, int] = field(default_factory=dict)
    causes: dict[int, int] = field(default_factory=dict)

    def add(self, total: Total) -> None:
        """Add the calls of one kind."""
        self.calls += total.calls
        self.ns += total.ns
        self.waited += total.waited
        self.longest = max(self.longest, total.longest)
        self.nbytes += total.nbytes
        name = f"{total.name} {total.variant}".rstrip()
        self.names[name] = self.names.get(name, 0) + total.ns
        for thread, ns in total.causes.items():
            self.causes[thread] = self.causes.get(thread, 0) + ns

    @property
    def waiting(self) -> float:
        """Return the part of the time that is waiting."""
        return self.waited / self.ns if self.ns else 0.0

    @property
    def shares(self) -> list[tuple[int, float]]:
        """Return the threads that were waited for, and their parts of the waiting."""
        whole = sum(self.causes.values())
        order = sorted(self.causes.items(), key=lambda item: (-item[1], item[0]))
        return [(thread, ns / whole) for thread, ns in order if whole]

    @property
    def name(self) -> str:
        """Return the call that takes most of the time."""
        first = max(self.names, key=lambda name: self.names[name])
        others = len(self.names) - 1
        return f"{first} and {others} more" if others else first


def costliest(totals: Sequence[Total], most: int = 10) -> list[Line]:
    """Return the lines that take most time."""
    lines: dict[str, Line] = {}
    for total in totals:
        lines.setdefault(total.line, Line(total.line)).add(total)
    return sorted(lines.values(), key=lambda line: -line.ns)[:most]


def as_data(trace: Trace, most: int = 10) -> dict[str, Any]:
    """Return the summary as plain data for JSON."""
    return {
        "threads": trace.threads,
        "seconds": trace.ns / 1e9,
        "calls": sum(total.calls for total in trace.totals),
        "one event in": 1 << trace.level,
        "missing threads": trace.missing,
        "calls that MPI carried": trace.elsewhere,
        "lines": [_line_data(line) for line in costliest(trace.totals, most)],
    }


def _line_data(line: Line) -> dict[str, Any]:
    return {
        "line": line.line,
        "calls": line.calls,
        "seconds": line.ns / 1e9,
        "waiting": line.waiting,
        "longest wait": line.longest / 1e9,
        "bytes": line.nbytes,
        "names": line.names,
        "waits for": [{"thread": t, "part": part} for t, part in line.shares],
    }


# -- as text -------------------------------------------------------------------------------------


def rendered(trace: Trace, most: int = 10) -> Iterator[str]:
    """Yield the lines of the summary."""
    lines = costliest(trace.totals, most)
    ns = sum(total.ns for total in trace.totals)
    waited = sum(total.waited for total in trace.totals)
    calls = sum(total.calls for total in trace.totals)
    nodes = len({about["node"] for about in trace.threads})
    whole = trace.ns * len(trace.threads)
    yield (
        f"{_count(len(trace.threads), 'thread')} on {_count(nodes, 'node')}, "
        f"{_time(trace.ns)}: {_count(calls, 'call')}, {_percent(ns, whole)} of the threads' time, "
        f"{_percent(waited, ns)} of that waiting"
    )
    yield ""
    rows = [["of all", "waiting", "for thread", "calls", "each", "line", "call"]]
    rows += [_row(line, ns) for line in lines]
    yield from _aligned(rows)
    yield from _remarks(trace)


def _row(line: Line, ns: int) -> list[str]:
    shares = [f"{t} ({_percent(part, 1)})" for t, part in line.shares[:MOST_CAUSES]]
    return [
        _percent(line.ns, ns), _percent(line.waited, line.ns), ", ".join(shares) or "-",
        f"{line.calls:,}", _time(line.ns / line.calls if line.calls else 0), line.line, line.name,
    ]  # fmt: skip


def _remarks(trace: Trace) -> Iterator[str]:
    if trace.level:
        yield ""
        yield (
            f"One call in {1 << trace.level} is an event of the trace; which thread a line waits "
            "for is known from these. All other figures are of all calls."
        )
    running = [str(about["thread"]) for about in trace.threads if not about["finalized"]]
    if running:
        yield ""
        yield f"Without finalize: thread {', '.join(running)}. Its last call may not have ended."
    if trace.missing:
        yield ""
        yield f"Without a part: thread {', '.join(map(str, trace.missing))}."


    if trace.elsewhere:
        yield ""
        yield _elsewhere(trace.elsewhere)


def _elsewhere(rows: Sequence[dict[str, Any]]) -> str:
    """Return which calls are not in the trace."""
    words = [
        f"{row['calls']:,} {row['name']}" + f" ({row['why']})" * bool(row["why"])
        for row in rows[:MOST_ELSEWHERE]
    ]
    if more := sum(row["calls"] for row in rows[MOST_ELSEWHERE:]):
        words.append(f"{more:,} more")
    whole = sum(row["calls"] for row in rows)
    return f"Not recorded, since MPI carried them: {_count(whole, 'call')}: {', '.join(words)}."


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with columns; those of numbers end at one place."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if k in (2, 5, 6) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"
