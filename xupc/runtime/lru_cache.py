"""A cache that drops the value which was not used for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = [
    "LruCache",
]


T = TypeVar("T")


class LruCache(Generic[T]):
    """Keeps the `limit` values that were used last; `dropped` is called with each removed one."""

    def __init__(self, limit: int, dropped: Callable[[T], object] | None = None) -> None:
        self._limit = limit
        self._dropped = dropped
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return the value of a key; ``build()`` makes it if there is none."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
            return value
        self._kept[key] = value = build()
        if len(self._kept) > self._limit:
            _, old = self._kept.popitem(last=False)
            if self._dropped is not None:
                self._dropped(old)
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._kept.clear()
