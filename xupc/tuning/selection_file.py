"""Files of selection tables: where they are looked for, and what they must look like.

A user's table is the file that ``XUPC_TUNING`` names, else ``xupc/tuning.toml`` in the user's
config directory, if it is there. One thread of a job looks, and sends the others what it `Found`:
ten thousand nodes must not read one file of a home directory at once.
"""

from __future__ import annotations

import os
import re
import reprlib
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..algorithms import registry
from ..flags import ALGORITHM_NAMES
from ..plan.steps import OP_SCRATCH_BYTES, STAGING_BYTES
from ..records import record
from .built_in_table import TABLE
from .old_keys import NEW_KEYS
from .selection import CarrierRule, Rule, Table, public_name, shape_of

__all__ = [
    "BUILT_IN", "TEXT_OF_BUILT_IN", "TEXT_OF_PRICED", "VARIABLE", "Found", "built_in", "find",
    "load", "parse", "read", "user_path",
]  # fmt: skip

VARIABLE = "XUPC_TUNING"
BUILT_IN = "built-in"
TEXT_OF_BUILT_IN = Path(__file__).with_name("selection.toml")
TEXT_OF_PRICED = Path(__file__).with_name("priced.toml")
VERSION = 1
LARGEST = 1 << 20  # a file beyond this is no table
FAR = 1 << 46  # no size, count or limit is larger
SOURCES = "measured", "priced", "modelled"
FAMILIES = "mpich", "openmpi", "other"
TRANSPORTS = "shm", "tcp", "fabric"
SECTIONS = (
    "default", *TRANSPORTS, *FAMILIES, *(f"{f}-{t}" for f in FAMILIES for t in TRANSPORTS)
)  # fmt: skip
_RUN = re.compile(r"(?:([1-9][0-9]{0,8})x)?([1-9][0-9]{0,8})")
_LEVELS = re.compile(r"none|some|[1-9][0-9]{0,8}(?:,[1-9][0-9]{0,8})*")
_SHOWN = 5  # most problems of a file in a message

# --- the schema -----------------------------------------------------------------------------------

Read = Callable[[Any], Any]
"""A value as it is in the file -> as we keep it; ValueError says what was expected."""


def _number(least: int, most: int = FAR) -> Read:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"expected an int from {least} to {most}")
        return value

    return read


def _one_of(known: Mapping[str, Any]) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return known[value]

    return read


def _collective(value: Any) -> str:
    if value == "*":
        return "*"
    known = {public_name(name): name for name in registry.collectives()}
    if not isinstance(value, str) or value not in known:
        raise ValueError("expected a collective like all_gather, all_gather_v, allav_gather, or *")
    return known[value]


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _shape(value: Any) -> str:
    """Return a shape in the form of `shape_of`, which places use."""
    runs = [_RUN.fullmatch(part) for part in value.split(",")] if isinstance(value, str) else [None]
    if None in runs:
        raise ValueError('expected node sizes like "8", "4x2" or "3,1,4"')
    return shape_of((int(run[1] or 1), int(run[2])) for run in runs if run)


def _levels(value: Any) -> str:
    if not isinstance(value, str) or not _LEVELS.fullmatch(value):
        raise ValueError('expected "none", "some", or the domains of each level, like "2,16"')
    return value


def _algorithm(value: Any) -> tuple[int, str]:
    """Return the flag and the label of an algorithm."""
    return registry.parse_name(value)


def _named(names: Iterable[str]) -> Read:
    return _one_of({name: name for name in names})


_CONDITIONS: dict[str, Read] = {
    "min_bytes": _number(0),
    "max_bytes": _number(0),
    "min_threads": _number(1),
    "max_threads": _number(1),
    "min_nodes": _number(1),
    "max_nodes": _number(1),
    "nodes": _named(("one", "many")),
    "shape": _shape,
    "oversubscribed": _truth,
    "family": _named(FAMILIES),
    "transport": _named(TRANSPORTS),
    "levels": _levels,
}
RULE: dict[str, Read] = {
    "collective": _collective,
    **_CONDITIONS,
    "algorithm": _algorithm,
    "if_possible": _truth,
    "source": _named(SOURCES),
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
    "method": _named(("*", *METHODS)),
    **_CONDITIONS,
    "carrier": _named(("xupc", "mpi")),
}
"""The keys of a ``[[drop_in]]`` entry."""
_OF_CARRIER = "method", "carrier"
_RANGES = "bytes", "threads", "nodes"

_UNIT, _LIMIT = _number(4096, 1 << 30), _number(0)
SIZES: dict[str, Read] = {
    "chunk": _UNIT,
    "alltoall_chunk": _UNIT,
    "notify_bytes": _LIMIT,
    "max_message": _UNIT,
    "max_messages": _number(1),
    "rma_get_max": _UNIT,
    "window": _number(1, 1 << 20),
    "fused_max": _LIMIT,
    "rebalance_min": _LIMIT,
    "fold_wakeup_min": _number(1),
    "root_exchange_max": _number(0, 1 << 22),  # there is room for so much
    "root_exchange_max_one_block": _number(0, 1 << 22),
    "pipeline_min": _LIMIT,
    "few_nodes_max": _number(0, 64),  # of each of so many nodes
    "nt_store_min": _LIMIT,
    "reduce_chunk": _UNIT,
    "staging_bytes": _number(1 << 16, STAGING_BYTES),
    "eager_max": _number(0, OP_SCRATCH_BYTES),
    "staging_chunk": _UNIT,
    "direct_min": _LIMIT,
    "direct_min_pair": _LIMIT,
    "direct_min_alltoall": _LIMIT,
    "direct_min_shared_source": _LIMIT,
    "direct_reduce_max": _LIMIT,
    "tried": _number(0, 1),
    "direct_put_min": _LIMIT,
    "parallel_fold_threads": _number(1),
    "level_barrier_min": _number(1),
    "level_barrier_crowded": _number(0, 1),
    "yields_before_sleep": _number(0, 1 << 20),
}
"""The keys of a ``[tuning.*]`` section; what they mean stands in the built-in table."""


HOST: dict[str, Read] = {
    "direct_min": _LIMIT,
    "direct_min_pair": _LIMIT,
    "direct_reduce": _number(0, 1),
    "nt_store_min": _LIMIT,
}
"""The keys of a ``[host.*]`` section: `HostFigures`."""


def _shown(value: Any) -> str:
    """A value in a message."""
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
        """The table, as far as it is good."""
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
        for values in self._entries(data, "choose", RULE, _REQUIRED):
            flag, label = values.pop("algorithm")
            yield Rule(algorithm=flag, variant=label, **values)

    def _carriers(self, data: dict[str, Any]) -> Iterator[CarrierRule]:
        for values in self._entries(data, "drop_in", CARRIER, _OF_CARRIER):
            yield CarrierRule(**values)

    def _entries(
        self, data: dict[str, Any], kind: str, keys: dict[str, Read], required: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the values of the entries of a kind that have all that they must have."""
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
                yield values

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
                yield name, self._values(where, self._renamed(where, section), SIZES)

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

    def _renamed(self, where: str, section: dict[str, Any]) -> dict[str, Any]:
        """Return a section whose old keys have their new names, with a warning for each."""
        found: dict[str, Any] = {}
        for key, value in section.items():
            name = NEW_KEYS.get(key, key)
            if name in found or (name != key and name in section):
                self.note(where, name, f"it is there twice, also as {_shown(key)}: remove one")
                continue
            if name != key:
                warnings.warn(
                    f"tuning table {self.name}: {where}: {key} is now called {name}: rename it",
                    DeprecationWarning,
                    stacklevel=2,
                )
            found[name] = value
        return found

    def _values(self, where: str, entry: dict[str, Any], keys: dict[str, Read]) -> dict[str, Any]:
        """Those that are good."""
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
        """Nothing lies below it: every call must find a rule, and every size."""
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
    return {Rule(collective, f, nodes=n) for n in (None, nodes) for f in ALGORITHM_NAMES}


def parse(text: str, name: str, base: Table | None) -> Table:
    """The table that TOML text says, over another one.

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


def built_in() -> Table:
    """The table that comes with xupc: what `TEXT_OF_BUILT_IN` says."""
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
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Found(str(path), problem="it is no file")
            data = file.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        return Found(str(path), problem=f"it cannot be read: {reason}")
    if len(data) > LARGEST:
        return Found(str(path), problem=f"it is longer than {LARGEST} bytes")
    try:
        return Found(str(path), data.decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as e:
        return Found(str(path), problem=f"it is no UTF-8: {e.reason} at byte {e.start}")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; of a pipe do not wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def load(found: Found | None) -> Table:
    """The table in use: what was found over the built-in one.

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
