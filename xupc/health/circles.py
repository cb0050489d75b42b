"""Find threads that wait for each other."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["circle_through"]


def circle_through(start: int, awaited: Callable[[int], list[int]]) -> list[int]:
    """Return threads from `start` on, each of which waits for the next, the last for `start`.

    Empty if there are none. `awaited` returns the threads that a thread waits for.
    """
    way, left, seen = [start], [[*awaited(start)]], {start}
    while left:
        if not left[-1]:
            left.pop()
            way.pop()
            continue
        i = left[-1].pop()
        if i == start:
            return way
        if i not in seen:
            seen.add(i)
            way.append(i)
            left.append([*awaited(i)])
    return []
