"""Files of selection tables: where they are looked for, and what they must look like.

A user's table is the file that ``XUPC_TUNING`` names, else ``xupc/tuning.toml`` in the user's
config directory, if it is there. One thread of a job looks, and sends the others what it `Found`:
ten thousand nodes must not read one file of a home directory at once.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..algorithms import registry
from ..errors import warn
from ..flags import ALGORITHM_NAMES
from ..given_files import contents_of
from ..plan.steps import OP_SCRATCH_BYTES, STAGING_BYTES
from ..records import record
from .built_in_table import TABLE
from .old_keys import NEW_KEYS
from .selection import CONDITIONS, FAMILIES, TRANSPORTS, CarrierRule, Rule, Table, When, public_name
from .table_values import FAR, Read, one_of, truth, whole

__all__ = [
    "BUILT_IN", "METHODS", "TEXT_OF_BUILT_IN", "TEXT_OF_PRICED", "VARIABLE", "Found", "built_in",
    "find", "load", "parse", "read", "text_of", "user_path",
]  # fmt: skip

VARIABLE = "XUPC_TUNING"
BUILT_IN = "built-in"
TEXT_OF_BUILT_IN = Path(__file__).with_name("selection.toml")
TEXT_OF_PRICED = Path(__file__).with_name("priced.toml")
VERSION = 1
LARGEST = 1 << 20  # a file beyond this is no table
SOURCES = "measured", "priced", "modelled"
SECTIONS = (
    "default", *TRANSPORTS, *FAMILIES, *(f"{f}-{t}" for f in FAMILIES for t in TRANSPORTS)
)  # fmt: skip
_SHOWN = 5  # most problems of a file in a message

# --- the schema -----------------------------------------------------------------------------------


def _collective(value: Any) -> str:
    if value == "*":
        return "*"
    known = {public_name(name): name for name in registry.collectives()}
    if not isinstance(value, str) or value not in known:
        raise ValueError("expected a collective like all_gather, all_gather_v, allav_gather, or *")
    return known[value]


def _algorithm(value: Any) -> tuple[int, str]:
    """Return the flag and the label of an algorithm."""
    return registry.parse_name(value)


_CONDITIONS = {key: condition.read for key, condition in CONDITIONS.items()}
RULE: dict[str, Read] = {
    "collective": _collective,
    **_CONDITIONS,
    "algorithm": _algorithm,
    "if_possible": truth,
    "source": one_of(SOURCES),
}
"""The keys of a ``[[choose]]`` entry, in the order in which they are written."""
_REQUIRED = "collective", "algorithm"

METHODS = (
    "Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Barrier", "Bcast", "Exscan",
    "Gather", "Gatherv", "Iallgather", "Iallreduce", "Ialltoall", "Ibarrier", "Ibcast", "Iexscan",
    "Igather", "Ireduce", "Ireduce_scatter", "Ireduce_scatter_block", "Iscan", "Iscatter",
    "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
    "Neighbor_alltoallv", "Neighbor_alltoallw", "Reduce", "Reduce_scatter", "Reduce_scatter_block",
    "Scan", "Scatter", "Scatterv", "allgather", "allreduce", "alltoall", "barrier", "bcast",
    "exscan", "gather", "reduce", "scan", "scatter",
)  # fmt: skip
CARRIER: dict[str, Read] = {
    "method": one_of(["*", *METHODS]),
    **_CONDITIONS,
    "carrier": one_of(("xupc", "mpi")),
}
"""The keys of a ``[[drop_in]]`` entry."""
_OF_CARRIER = "method", "carrier"
_RANGES = [key.removeprefix("min_") for key in CONDITIONS if key.startswith("min_")]

_UNIT, _LIMIT = whole(4096, 1 << 30), whole(0)
SIZES: dict[str, Read] = {
    "chunk": _UNIT,
    "alltoall_chunk": _UNIT,
    "notify_bytes": _LIMIT,
    "max_message": _UNIT,
    "max_messages": whole(1),
    "rma_get_max": _UNIT,
    "window": whole(1, 1 << 20),
    "fused_max": _LIMIT,
    "rebalance_min": _LIMIT,
    "fold_wakeup_min": whole(1),
    "root_exchange_max": whole(0, 1 << 22),  # there is room for so much
    "root_exchange_max_one_block": whole(0, 1 << 22),
    "pipeline_min": _LIMIT,
    "few_nodes_max": whole(0, 64),  # of each of so many nodes
    "nt_store_min": _LIMIT,
    "reduce_chunk": _UNIT,
    "staging_bytes": whole(1 << 16, STAGING_BYTES),
    "eager_max": whole(0, OP_SCRATCH_BYTES),
    "staging_chunk": _UNIT,
    "direct_min": _LIMIT,
    "direct_min_pair": _LIMIT,
    "direct_min_alltoall": _LIMIT,
    "direct_min_shared_source": _LIMIT,
    "direct_reduce_max": _LIMIT,
    "tried": whole(0, 1),
    "direct_put_min": _LIMIT,
    "parallel_fold_threads": whole(1),
    "level_barrier_min": whole(1),
    "level_barrier_crowded": whole(0, 1),
    "yields_before_sleep": whole(0, 1 << 20),
}
"""The keys of a ``[tuning.*]`` section; what they mean stands in the built-in table."""


HOST: dict[str, Read] = {
    "direct_min": _LIMIT,
    "direct_min_pair": _LIMIT,
    "direct_reduce": whole(0, 1),
    "nt_store_min": _LIMIT,
}
"""The keys of a ``[host.*]`` section: `HostFigures`."""


def _shown(value: Any) -> str:
    """Return a value in a message."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an int with thousands of digits
        return "a number that is too long"


class _Reader:
    """Goes through a table and notes everything that is wrong with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []

    def table(self, data: dict[str, Any], name: str, base: Table | None) -> Table:
        """Return the table, as far as it is good."""
        version = data.get("version")
        if type(version) is not int or version != VERSION:
            found = "it is missing" if version is None else f"got {_shown(version)}"
            self.note("version", f"expected {VERSION}, {found}")
        for key in data.keys() - {"version", "tuning", "choose", "drop_in", "host"}:
            self.note(_shown(key), "there is no such key or section")
        sizes, hosts = dict(self._sizes(data)), dict(self._hosts(data))
        rules, carriers = tuple(self._rules(data)), tuple(self._carriers(data))
        table = Table(name, rules, sizes, base, hosts, carriers)
        if base is None and not self.problems:
            self._complete(table)
        return table

    def note(self, *words: str) -> None:
        self.problems.append(": ".join(words))

    def _rules(self, data: dict[str, Any]) -> Iterator[Rule]:
        for when, values in self._entries(data, "choose", RULE, _REQUIRED):
            flag, label = values.pop("algorithm")
            yield Rule(algorithm=flag, variant=label, when=when, **values)

    def _carriers(self, data: dict[str, Any]) -> Iterator[CarrierRule]:
        for when, values in self._entries(data, "drop_in", CARRIER, _OF_CARRIER):
            yield CarrierRule(when=when, **values)

    def _entries(
        self, data: dict[str, Any], kind: str, keys: dict[str, Read], required: Sequence[str]
    ) -> Iterator[tuple[When, dict[str, Any]]]:
        """Yield conditions and other values of a kind's entries that have all that they must."""
        entries = data.get(kind, [])
        if not isinstance(entries, list):
            self.note(kind, f"expected entries that begin with [[{kind}]]")
            return
        for number, entry in enumerate(entries, 1):
            where = f"[[{kind}]] entry {number}"
            if not isinstance(entry, dict):
                self.note(where, "expected keys and values")
                continue
            values = self._values(where, entry, keys)
            for key in required:
                if key not in entry:
                    self.note(where, key, "it is missing")
            for what in _RANGES:
                least, most = values.get(f"min_{what}", 0), values.get(f"max_{what}", FAR)
                if least > most:
                    self.note(where, f"max_{what}", f"expected at least {least}, got {most}")
            if all(key in values for key in required):
                given = {key: values.pop(key) for key in CONDITIONS if key in values}
                yield When(**given), values

    def _sizes(self, data: dict[str, Any]) -> Iterator[tuple[str, dict[str, int]]]:
        sections = data.get("tuning", {})
        if not isinstance(sections, dict):
            self.note("tuning", "expected sections like [tuning.default]")
            return
        for name, section in sections.items():
            where = f"[tuning.{name if len(name) < 20 else name[:20] + '...'}]"
            if name not in SECTIONS:
                self.note(where, f"expected one of {', '.join(SECTIONS)}")
            elif not isinstance(section, dict):
                self.note(where, "expected sizes")
            else:
                yield name, self._values(where, self._reone_of(where, section), SIZES)

    def _hosts(self, data: dict[str, Any]) -> Iterator[tuple[str, dict[str, int]]]:
        sections = data.get("host", {})
        if not isinstance(sections, dict):
            self.note("host", 'expected sections like [host."node17"]')
            return
        for name, section in sections.items():
            where = f"[host.{_shown(name)}]"
            if isinstance(section, dict):
                yield name, self._values(where, section, HOST)
            else:
                self.note(where, "expected figures")

    def _reone_of(self, where: str, section: dict[str, Any]) -> dict[str, Any]:
        """Return a section whose old keys have their new names, with a warning for each."""
        found: dict[str, Any] = {}
        for key, value in section.items():
            name = NEW_KEYS.get(key, key)
            if name in found or (name != key and name in section):
                self.note(where, name, f"it is there twice, also as {_shown(key)}: remove one")
                continue
            if name != key:
                warn(
                    f"tuning table {self.name}: {where}: {key} is now called {name}: rename it",
                    DeprecationWarning,
                )
            found[name] = value
        return found

    def _values(self, where: str, entry: dict[str, Any], keys: dict[str, Read]) -> dict[str, Any]:
        """Return the values that are valid."""
        found = {}
        for key, value in entry.items():
            if key not in keys:
                self.note(where, _shown(key), f"expected one of {', '.join(keys)}")
                continue
            try:
                found[key] = keys[key](value)
            except ValueError as e:
                self.note(where, key, f"{e}, got {_shown(value)}")
        return found

    def _complete(self, table: Table) -> None:
        """Check that every call finds a rule, and every size: no table lies below this one."""
        for missing in SIZES.keys() - table.sizes.get("default", {}).keys():
            self.note("[tuning.default]", missing, "it is missing")
        for missing in HOST.keys() - table.hosts.get("*", {}).keys():
            self.note('[host."*"]', missing, "it is missing")
        for nodes in ("one", "many"):
            of_all = _without_conditions("*", nodes)
            if not of_all.isdisjoint(table.rules):
                continue
            for name in registry.collectives():
                if _without_conditions(name, nodes).isdisjoint(table.rules):
                    call = f'{public_name(name)} with nodes = "{nodes}"'
                    self.note("choose", f"no entry without further conditions fits {call}")


def _without_conditions(collective: str, nodes: str) -> set[Rule]:
    """Return the rules of a collective that fit every call on one node, or on many."""
    return {Rule(collective, f, When(nodes=n)) for n in (None, nodes) for f in ALGORITHM_NAMES}


def parse(text: str, name: str, base: Table | None) -> Table:
    """Return the table that TOML text says, over another one.

    Raises
    ------
    ValueError
        Names the table and everything that is wrong with it.
    """
    import tomllib  # few jobs have a table of their own, and it takes a start some milliseconds

    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"tuning table {name}: nested too deeply") from None
    except ValueError as e:
        raise ValueError(f"tuning table {name}: no TOML: {e}") from None
    reader = _Reader(name)
    table = reader.table(data, name, base)
    if reader.problems:
        more = len(reader.problems) - _SHOWN
        words = [*reader.problems[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        raise ValueError(f"tuning table {name}: {'; '.join(words)}")
    return table


def text_of(rule: Rule | CarrierRule) -> str:
    """Return a rule as the entry of a file that `parse` reads."""
    values = {key: getattr(rule.when, key) for key in CONDITIONS}
    if isinstance(rule, CarrierRule):
        return _entry(
            "drop_in", CARRIER, {**values, "method": rule.method, "carrier": rule.carrier}
        )
    values |= {
        "collective": "*" if rule.collective == "*" else public_name(rule.collective),
        "algorithm": rule.name, "if_possible": rule.if_possible, "source": rule.source,
    }  # fmt: skip
    return _entry("choose", RULE, values)


def _entry(kind: str, keys: Iterable[str], values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_text(values[key])}" for key in keys if values[key] not in (None, "")]
    return "\n".join([f"[[{kind}]]", *lines, ""])


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f'"{value}"'


def built_in() -> Table:
    """Return the table that comes with xupc: what `TEXT_OF_BUILT_IN` says."""
    return TABLE


# --- the user's -----------------------------------------------------------------------------------


@record
class Found:
    """A user's table as it was read, or why it could not be."""

    path: str
    text: str = ""
    problem: str = ""


def user_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the user's table; None if there is no home directory."""
    if named := environ.get(VARIABLE):
        return Path(named)
    config = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):  # as the standard for it demands
        home = environ.get("HOME", "")
        config = os.path.join(home, ".config") if os.path.isabs(home) else ""
    return Path(config, "xupc", "tuning.toml") if config else None


def find(environ: Mapping[str, str] = os.environ) -> Found | None:
    """Return the user's table; None if there is none. Never raise: other threads wait for it."""
    path = user_path(environ)
    found = None if path is None else read(path)
    if found is None and environ.get(VARIABLE):
        return Found(str(path), problem=f"{VARIABLE} names it, but it is not there")
    return found


def read(path: Path) -> Found | None:
    """Return the contents of a table file; None if there is no file. Never raise."""
    try:
        data = contents_of(path, LARGEST, pipes=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        return Found(str(path), problem=f"it cannot be read: {reason}")
    try:
        return Found(str(path), data.decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as e:
        return Found(str(path), problem=f"it is no UTF-8: {e.reason} at byte {e.start}")


def load(found: Found | None) -> Table:
    """Return the table in use: what was found over the built-in one.

    Raises
    ------
    ValueError
        It is a bad one; names it and what is wrong.
    """
    if found is None:
        return built_in()
    if found.problem:
        raise ValueError(f"tuning table {found.path}: {found.problem}")
    return parse(found.text, found.path, built_in())
