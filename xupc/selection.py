"""Which algorithm, and which sizes: read from a TOML table, never from code."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from .flags import ALGORITHM_NAMES

__all__ = ["Place", "Rule", "Table", "load"]

_FLAG_OF = {name: flag for flag, name in ALGORITHM_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``[[choose]]`` entry; a missing condition fits everything."""

    collective: str
    algorithm: int
    nodes: str | None = None
    max_bytes: int | None = None
    max_threads: int | None = None
    oversubscribed: bool | None = None
    family: str | None = None
    transport: str | None = None

    def fits(self, collective: str, nbytes: int, threads: int, place: Place) -> bool:
        """Whether the rule applies to a call."""
        return (
            self.collective in ("*", collective)
            and self.nodes in (None, place.nodes)
            and (self.max_bytes is None or nbytes <= self.max_bytes)
            and (self.max_threads is None or threads <= self.max_threads)
            and self.oversubscribed in (None, place.oversubscribed)
            and self.family in (None, place.family)
            and self.transport in (None, place.transport)
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a team runs: what rules may ask about."""

    nodes: str
    family: str
    transport: str
    oversubscribed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """The selection table."""

    rules: tuple[Rule, ...]
    tunings: dict[str, dict[str, int]]

    def choose(self, collective: str, nbytes: int, threads: int, place: Place) -> int:
        """The algorithm flag for a call without one."""
        for rule in self.rules:
            if rule.fits(collective, nbytes, threads, place):
                return rule.algorithm
        raise LookupError(f"the selection table has no rule for {collective}")

    def tuning(self, place: Place) -> dict[str, int]:
        """Sizes for a place: default, ``transport``, ``family``, then ``family-transport``."""
        sizes = dict(self.tunings["default"])
        for name in (place.transport, place.family, f"{place.family}-{place.transport}"):
            sizes.update(self.tunings.get(name, {}))
        return sizes


def load(text: str | None = None) -> Table:
    """The built-in table, or one from TOML text."""
    if text is None:
        text = resources.files("xupc").joinpath("selection.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    if data.get("version") != 1:
        raise ValueError(f"selection table: version {data.get('version')!r}, expected 1")
    return Table(tuple(_rule(entry) for entry in data["choose"]), data["tuning"])


def _rule(entry: dict[str, Any]) -> Rule:
    fields = dict(entry)
    name = fields.pop("algorithm")
    if name not in _FLAG_OF:
        raise ValueError(f"selection table: algorithm {name!r}, expected one of {list(_FLAG_OF)}")
    return Rule(algorithm=_FLAG_OF[name], **fields)
