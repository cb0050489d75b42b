"""Prints a page of docs/reference: python scripts/reference.py NAME > docs/reference/NAME.md.

NAME is variables or table-keys, made of the tables that the library itself reads, or figures, made
of the tables in benchmarks/results. With api, the page is the present one with new signatures.

    python scripts/reference.py built-in-table > xupc/tuning/built_in_table.py

makes the module of the built-in selection table from selection.toml.
"""

from __future__ import annotations

import inspect
import pprint
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import xupc
from xupc.cli.variables import VARIABLES
from xupc.flags import ALGORITHM_NAMES
from xupc.tuning import selection_file
from xupc.tuning.old_keys import NEW_KEYS
from xupc.tuning.selection import CONDITIONS, CarrierRule, Rule, When

ROOT = Path(__file__).resolve().parent.parent
MADE = "This page is made by `python scripts/reference.py {name} > docs/reference/{name}.md`.\n"
GROUPS = {
    "programs": "A program reads these when it calls `xupc.init`. Arguments of `init` and options "
    "of `xupc run` of the same meaning count more.",
    "installation": "Installation and the scripts of the source tree read these.",
    "internal": "xupc sets these itself. You need not set them.",
}

# --- variables ------------------------------------------------------------------------------------


def variables() -> str:
    """Return the page of all variables."""
    parts = [
        "# Environment variables\n",
        MADE.format(name="variables"),
        "`xupc info` prints those that are set. It reports a name that is not on this page, and\n"
        "so does `xupc run`.\n",
    ]
    parts += [_group(group, words) for group, words in GROUPS.items()]
    return "\n".join(parts)


def _group(group: str, words: str) -> str:
    rows = [
        f"`{name}` | {found.values} | {found.default} | {found.meaning}"
        for name, found in VARIABLES.items()
        if found.group == group
    ]
    table = _table("variable | values | default | meaning", rows)
    return f"## {group.capitalize()}\n\n{words}\n\n{table}"


# --- signatures -----------------------------------------------------------------------------------

BEGIN, END = "<!-- signatures -->\n```text\n", "```\n<!-- end -->\n\n"
SIGNATURES = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
DIRECTIVES = re.compile(r"```\{eval-rst\}\n.*?```\n", re.DOTALL)
DOCUMENTED = re.compile(r"^\.\. auto(?:function|class):: (\w+)$(\n   :members:$)?", re.MULTILINE)


def api() -> str:
    """Return the page of all calls, with the signatures of each section before its docstrings."""
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    return DIRECTIVES.sub(lambda found: _signatures(found[0]) + found[0], SIGNATURES.sub("", text))


def _signatures(directives: str) -> str:
    """Return a block of code with the signatures of what some directives document."""
    found = []
    for name, members in DOCUMENTED.findall(directives):
        of = getattr(xupc, name)
        if not members:
            found.append(_signature(name, of))
        elif not issubclass(of, int):  # members of an enumeration are values
            names = (x for x, member in vars(of).items() if callable(member) and x[0] != "_")
            found += [_signature(f"{name}.{x}", getattr(of, x)) for x in names]
    lines = "\n".join(x for x in found if x)
    return f"{BEGIN}{lines}\n{END}" if lines else ""


def _signature(name: str, call: Any) -> str:
    """Return `name(arguments)` without types; "" if a class is not called by programs."""
    signature = inspect.signature(call)
    none = inspect.Parameter.empty
    parts = [x.replace(annotation=none) for x in signature.parameters.values() if x.name != "self"]
    shown = str(signature.replace(parameters=parts, return_annotation=none))
    shown = re.sub(r"<class '([\w.]+)'>", r"\1", shown).replace("Ellipsis", "...")
    return "" if inspect.isclass(call) else f"{name}{shown}"


# --- figures --------------------------------------------------------------------------------------

SUITES = {
    "one-node-2-threads": "one node, 2 threads: moves of blocks",
    "one-node-8-threads": "the same with 8 threads on 2 cores",
    "one-node-2-threads-computations": "one node, 2 threads: exchange, broadcast in place, reduce, "
    "allreduce, scan",
    "one-node-8-threads-computations": "the same with 8 threads on 2 cores",
    "one-node-2-threads-values": "one node, 2 threads: private arrays (`allav_*`)",
    "one-node-8-threads-values": "the same with 8 threads on 2 cores",
    "one-node-2-threads-scatters": "one node, 2 threads: reduce_scatter and exclusive scans",
    "one-node-2-threads-uneven": "one node, 2 threads: Allgatherv and Alltoallv with nine tenths "
    "of the data on one thread",
    "one-node-2-threads-loop": "one node, 2 threads: calls back to back",
    "cluster-4x4-auto": "emulated cluster, 4 nodes of 4 threads, 1 Gbit/s: moves of blocks",
    "cluster-4x4-computations": "the same: exchange, broadcast in place, reduce, allreduce, scan",
    "cluster-4x4-values": "the same: private arrays",
}
COUNTS = re.compile(r"win: (\d+), parity: (\d+), LOSS: (\d+), not resolvable: (\d+) of (\d+) cells")
MEAN = re.compile(r"geometric mean against the best peer per cell: ([\d.]+)")


def figures() -> str:
    """Return the page with the verdicts of all tables of results."""
    rows = [_suite(name, words) for name, words in SUITES.items()]
    return "\n".join([
        "# Figures against mpi4py\n",
        MADE.format(name="figures"),
        "Each row counts the cells (a call with a size) of one table. A cell compares xupc with "
        "the best of several set-ups of MPICH 5.0 and Open MPI 5.0, in the same launches. The mean "
        "is geometric, of the time of mpi4py divided by that of xupc, over all cells. "
        "[How it was measured](../performance.md#how-it-was-measured).\n",
        _table(
            "where (link: all cells) | cells | faster | equal within the error | slower "
            "| too noisy to tell | mean",
            rows,
        ),
    ])  # fmt: skip


def _suite(name: str, words: str) -> str:
    text = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text(encoding="utf-8")
    counts, mean = COUNTS.search(text), MEAN.search(text)
    if counts is None or mean is None:
        raise SystemExit(
            f"benchmarks/results/{name}.md: expected lines 'win: ...', 'geometric ...'"
        )
    wins, equal, losses, noisy, cells = counts.groups()
    link = f"[{words}](../../benchmarks/results/{name}.md)"
    return " | ".join((link, cells, wins, equal, losses, noisy, mean[1]))


# --- keys of the selection table ------------------------------------------------------------------

RULES = {
    "collective": "name of the call, such as `all_gather`, `allav_gather`, "
    "`all_exchange_in_place`, `all_exclusive_prefix_reduce`; `*`: all. `allv_` calls follow "
    "`allav_`.",
    "algorithm": "`pull`, `push`, `multicore`, or a variant such as `multicore:ring`",
    "if_possible": "true: a call that the variant cannot carry out takes the next rule that fits; "
    "else it is an error",
    "source": "where the rule is from: `measured`, `priced` by the model of `xupc predict`, or "
    "`modelled` by counts of bytes and cache lines at each level; changes nothing",
    **{key: condition.meaning for key, condition in CONDITIONS.items()},
}
CARRIERS = {
    "method": "name of the method in mpi4py: `Bcast`, `bcast`; `*`: all",
    "carrier": "the library that carries the calls",
}


def table_keys() -> str:
    """Return the page of all keys of a selection table."""
    parts = [
        "# Keys of the selection table\n",
        MADE.format(name="table-keys"),
        "The built-in table is `xupc/tuning/selection.toml`. Your own table lies over it: the file "
        "of `XUPC_TUNING`, else `xupc/tuning.toml` in your config directory (`$XDG_CONFIG_HOME` or "
        "`~/.config`). It begins with `version = 1` and holds only the entries that differ. "
        "[Choose and tune](../how-to/choose-and-tune.md) has an example.\n",
        "A key or a value that is not allowed is a `ValueError` of `xupc.init` on every thread. It "
        "names the file, the entry and the values that are allowed.\n",
        _rules(), _carriers(), _sizes(), _hosts(), _old(),
    ]  # fmt: skip
    return "\n".join(parts)


def _rules() -> str:
    allowed = dict(_allowed(selection_file.RULE))
    rows = [f"`{key}` | {allowed[key]} | {words}" for key, words in RULES.items() if key in allowed]
    return (
        "## `[[choose]]`: which algorithm\n\n"
        "Entries are tried in order, yours first. The first one that fits is used. `collective` "
        "and `algorithm` are needed; a condition that is missing always holds.\n\n"
        + _table("key | allowed | meaning", rows)
    )


def _carriers() -> str:
    allowed = dict(_allowed(selection_file.CARRIER))
    rows = [f"`{key}` | {allowed[key]} | {words}" for key, words in CARRIERS.items()]
    return (
        "## `[[drop_in]]`: calls of the drop-in communicator\n\n"
        "Entries are tried in order, yours first. The first one that fits a call of "
        "[`xupc.Comm`](../from-mpi4py.md#which-library-carries-a-call) is used; without one, xupc "
        "carries the call. Both keys are needed. The conditions are those of `[[choose]]`. An "
        "entry with sizes does not fit `Barrier`.\n\n"
        "Only their senders have the sizes of objects (of their pickles), and of the blocks of "
        "`Gatherv`, `Scatterv` and `Alltoallv`. Such a call begins as one of 0 bytes: if an entry "
        "gives that one to MPI, MPI carries all calls of the method. Otherwise the first exchange "
        "of xupc moves messages of up to 488 bytes, and brings the sizes to all threads. If there "
        "are longer ones, the entry for the average message of the call decides which library "
        "moves the rest. Large arrays that `allreduce` and `reduce` [combine as numbers]"
        "(../from-mpi4py.md#calls-that-xupc-carries) follow the entries for `Allreduce` and "
        "`Reduce` instead.\n\n" + _table("key | allowed | meaning", rows)
    )


def _sizes() -> str:
    names = ", ".join(f"`{name}`" for name in selection_file.SECTIONS)
    return (
        "## `[tuning.NAME]`: sizes and counts\n\n"
        f"NAME is one of {names}. The more special one counts more. A size in any section of your "
        "table counts more than in all built-in ones. Sizes are in bytes. The default is that of "
        "`[tuning.default]`; other built-in sections may differ.\n\n"
        + _keys("tuning.default", selection_file.SIZES)
    )


def _hosts() -> str:
    return (
        '## `[host."NAME"]`: figures of a host\n\n'
        "NAME is the name of a host, or a pattern such as `node*`. `xupc tune` writes these.\n\n"
        + _keys('host."*"', selection_file.HOST)
    )


def _keys(section: str, schema: Mapping[str, Callable[[Any], Any]]) -> str:
    found = {key: (value, words) for key, value, words in _commented(section)}
    rows = [
        f"`{key}` | {found[key][0]} | {allowed} | {found[key][1]}"
        for key, allowed in _allowed(schema)
    ]
    return _table("key | default | allowed | meaning", rows)


def _commented(section: str) -> Iterator[tuple[str, str, str]]:
    """Yield each key of a section of the built-in table with its value and its comment."""
    text = selection_file.TEXT_OF_BUILT_IN.read_text(encoding="utf-8").split(f"\n[{section}]\n")[1]
    words: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            words.append(line.lstrip("# "))
        elif entry := re.fullmatch(r"(\w+) = (\d+)", line):
            yield entry[1], entry[2], " ".join(words)
            words = []
        else:
            return


def _allowed(schema: Mapping[str, Callable[[Any], Any]]) -> Iterator[tuple[str, str]]:
    """Yield each key with what its reader expects, in the reader's own message."""
    for key, read in schema.items():
        try:
            read(None)
        except ValueError as e:
            words = str(e).removeprefix("expected ").removeprefix("an ").split(" like ")[0]
            yield key, words.replace(f"to {selection_file.FAR}", "on")


def _old() -> str:
    rows = [f"`{old}` | `{new}`" for old, new in NEW_KEYS.items()]
    return (
        "## Old names\n\nThey are still read, with a DeprecationWarning.\n\n"
        + _table("old | new", rows)
    )  # fmt: skip


def _table(head: str, rows: Iterable[str]) -> str:
    rule = "|".join("---" for _ in head.split("|"))
    return "".join(f"| {row} |\n" for row in (head, *rows)).replace("\n", f"\n|{rule}|\n", 1)


# --- the built-in table ---------------------------------------------------------------------------


def built_in_table() -> str:
    """Return the module of the built-in selection table."""
    text = selection_file.TEXT_OF_BUILT_IN.read_text(encoding="utf-8")
    table = selection_file.parse(text, selection_file.BUILT_IN, None)
    priced = selection_file.TEXT_OF_PRICED.read_text(encoding="utf-8")
    first = selection_file.parse(priced, selection_file.BUILT_IN, table).rules
    rules = "".join(_wrapped(_rule(rule)) for rule in (*first, *table.rules))
    carriers = "".join(_wrapped(_carrier(rule)) for rule in table.carriers)
    flags = ", ".join(sorted({_flag(rule) for rule in (*first, *table.rules)}))
    return f"""{MODULE.format(flags=flags)}
TABLE = Table(
    {table.name!r},
    (
{rules}    ),
{_literal(table.sizes)},
    None,
{_literal(table.hosts)},
    (
{carriers}    ),
)
""".replace("'", '"')


def _wrapped(entry: str) -> str:
    """Return an entry of a tuple in lines of at most 100 characters."""
    indent = " " * 8
    text = f"{entry},"
    return textwrap.fill(text, 98, initial_indent=indent, subsequent_indent=indent * 2,
                         break_on_hyphens=False) + "\n"


def _rule(rule: Rule) -> str:
    """Return what makes a rule."""
    others = _given(rule, "variant", "if_possible", "source")
    return f"Rule({', '.join([repr(rule.collective), _flag(rule), *_when(rule.when), *others])})"


def _carrier(rule: CarrierRule) -> str:
    """Return what makes a rule of the drop-in communicator."""
    return f"CarrierRule({', '.join([repr(rule.method), repr(rule.carrier), *_when(rule.when)])})"


def _when(when: When) -> list[str]:
    """Return what makes conditions, if there are some."""
    given = _given(when, *CONDITIONS)
    return [f"When({', '.join(given)})"] if given else []


def _given(found: Rule | When, *names: str) -> list[str]:
    """Return the keyword arguments of the fields that have a value."""
    values = [(name, getattr(found, name)) for name in names]
    return [f"{name}={value!r}" for name, value in values if value not in (None, "")]


def _flag(rule: Rule) -> str:
    return ALGORITHM_NAMES[rule.algorithm].upper()


def _literal(sections: Mapping[str, Mapping[str, int]]) -> str:
    """Return a mapping of mappings as source text."""
    return textwrap.indent(pprint.pformat(sections, width=90, sort_dicts=False), "    ")


MODULE = """\"""The built-in selection table for Python, since to parse TOML takes each start 10 ms.

Made of priced.toml and selection.toml by
`python scripts/reference.py built-in-table > xupc/tuning/built_in_table.py`.
\"""

from __future__ import annotations

from ..flags import {flags}
from .selection import CarrierRule, Rule, Table, When

__all__ = ["TABLE"]
"""

PAGES = {
    "api": api, "variables": variables, "table-keys": table_keys, "figures": figures,
    "built-in-table": built_in_table,
}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python scripts/reference.py {' | '.join(PAGES)}")
    print(PAGES[sys.argv[1]](), end="")
