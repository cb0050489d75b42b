"""Price the variants of collectives on many nodes, and write rules of the selection table from it.

    python scripts/priced.py prices TRANSPORT COLLECTIVE...   prices collectives again
    python scripts/priced.py rules > xupc/tuning/priced.toml
    python scripts/reference.py built-in-table > xupc/tuning/built_in_table.py

Prices are in scripts/prices.json: modelled times of `xupc.predict` in ns, by transport, collective,
nodes, bytes and variant. Nothing was measured on so many nodes. The rules take the cheapest variant
of each cell, unless the library's own choice is within `CLOSE` of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xupc.algorithms.registry import parse_name
from xupc.backends.simulator.timeline import run
from xupc.predict.candidates import Question, chosen, variants_of
from xupc.predict.machine_file import find
from xupc.predict.price import programs_of
from xupc.records import replace
from xupc.tuning.selection import Rule, Table, When, registered_name
from xupc.tuning.selection_file import built_in, text_of

PRICES = Path(__file__).with_name("prices.json")
MACHINES = {"tcp": "gigabit", "fabric": "default"}
THREADS = 2  # of each node
NODES = 8, 16, 32, 64
BYTES = tuple(8**k for k in range(1, 8))  # 8 B to 2 MiB
MOST_MOVED = 1 << 21  # bytes that a node receives; plans of more are too long to price here
CLOSE = 0.03
FAR = frozenset(
    f"multicore:{name}"
    for name in ("binary", "bine", "binomial", "circulant", "knomial4", "knomial8", "multiplying")
)
"""Variants whose rounds grow with the logarithm of the nodes: they stand for all larger numbers."""
FORMS = {
    "all_broadcast": ("all_broadcast", "all_broadcast_in_place"),
    "allav_broadcast": ("allav_broadcast",),
    "all_gather_all": ("all_gather_all", "all_gather_all_in_place"),
    "allav_gather_all": ("allav_gather_all",),
    "all_reduce_mpi": ("all_reduce_mpi",),
    "all_reduce_mpi_all": ("all_reduce_mpi_all",),
    "all_reduce_scatter": ("all_reduce_scatter",),
    "allav_reduce_scatter": ("allav_reduce_scatter",),
}
"""The collectives with a choice between nodes, and the forms that follow the same prices."""
UNPRICED = {("tcp", "all_reduce_mpi_all")}
"""Left out: its plans in chunks of TCP take minutes here. No rule is made for it."""
BY_BLOCKS = "gather_all", "reduce_scatter"  # a node receives a block of every thread
LONGEST = {"all_reduce_mpi_all": 1 << 18}  # bytes; plans of more are too long to price here

PAIRS = tuple((t, c) for t in MACHINES for c in FORMS if (t, c) not in UNPRICED)
"""The transports and collectives that have prices."""

Prices = Mapping[str, float]
"""Of each variant of a cell, in ns."""
Cells = dict[str, dict[str, dict[str, float]]]
"""By nodes and bytes, both as text."""


def unpriced() -> Table:
    """Return the built-in table without the rules that are made here."""
    table = built_in()
    rules = tuple(rule for rule in table.rules if rule.source != "priced")
    return replace(table, rules=rules)


def question(transport: str, collective: str, nodes: int, nbytes: int) -> Question:
    """Return the call of a cell."""
    shape = f"{nodes}x{THREADS}"
    return Question(collective, nbytes, shape, nodes * THREADS, "mpich", transport)


def cells_of(collective: str) -> Iterator[tuple[int, int]]:
    """Yield the nodes and bytes of all cells of a collective."""
    for nodes in NODES:
        for nbytes in BYTES:
            moved = nbytes * (nodes * THREADS if collective.endswith(BY_BLOCKS) else 1)
            if moved <= MOST_MOVED and nbytes <= LONGEST.get(collective, MOST_MOVED):
                yield nodes, nbytes


def prices_of(transport: str, collective: str, nodes: int, nbytes: int) -> dict[str, float]:
    """Return the price of each variant of MULTICORE in a cell, in ns."""
    rates = find(MACHINES[transport]).rates()
    asked = question(transport, collective, nodes, nbytes)
    found = {}
    for variant, call in variants_of(asked, unpriced()):
        by_levels = variant.name.endswith(":levels")  # the clock knows no levels below a node
        if variant.name.startswith("multicore:") and not variant.own and not by_levels:
            found[variant.name] = round(run(programs_of(variant, call), rates).end, 1)
    return found


def stored() -> dict[str, dict[str, Cells]]:
    """Return all prices of the file."""
    found: dict[str, dict[str, Cells]] = json.loads(PRICES.read_text(encoding="utf-8"))
    return found


def price(transport: str, collective: str) -> None:
    """Price all cells of a collective, and write them to the file."""
    cells: Cells = {}
    for nodes, nbytes in cells_of(collective):
        cells.setdefault(str(nodes), {})[str(nbytes)] = prices_of(
            transport, collective, nodes, nbytes
        )
    known = stored() if PRICES.exists() else {}
    known.setdefault(transport, {})[collective] = cells
    PRICES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def best(prices: Prices, usual: str) -> str:
    """Return the cheapest variant, or the library's own choice if that is close to it."""
    first = min(prices, key=lambda name: (prices[name], name))
    return usual if prices.get(usual, float("inf")) <= prices[first] * (1 + CLOSE) else first


def rules() -> Iterator[Rule]:
    """Yield the rules, the most special ones first."""
    table = unpriced()
    for transport, collectives in sorted(stored().items()):
        for collective, cells in sorted(collectives.items()):
            for when, name in _of_collective(transport, collective, cells, table):
                flag, label = parse_name(name)
                for form in FORMS[collective]:
                    yield Rule(
                        registered_name(form), flag, when, label,
                        if_possible=True, source="priced",
                    )  # fmt: skip


def _of_collective(
    transport: str, collective: str, cells: Cells, table: Table
) -> Iterator[tuple[When, str]]:
    """Yield when a collective has which variant: for each number of nodes the ranges of bytes."""
    for nodes, beyond in pairwise([*NODES, None]):
        row = {int(size): prices for size, prices in cells[str(nodes)].items()}
        picks = {
            size: (best(prices, usual), usual)
            for size, prices in sorted(row.items())
            for usual in [chosen(question(transport, collective, nodes, size), table)]
        }
        for low, high, name in _ranges(picks):
            most = beyond or (None if name in FAR else 2 * nodes)
            yield When(
                min_bytes=low or None, max_bytes=high or None,
                min_nodes=nodes, max_nodes=most - 1 if most else None, transport=transport,
            ), name  # fmt: skip


def _ranges(picks: Mapping[int, tuple[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Yield (least bytes, most bytes, variant) where it is not the usual one; 0: no limit.

    A size stands for those up to half-way, in factors, to its neighbours. The largest of `BYTES`
    stands for all beyond.
    """
    sizes = list(picks)
    runs: list[list[int]] = []
    for size in sizes:
        if runs and picks[runs[-1][-1]][0] == picks[size][0]:
            runs[-1].append(size)
        else:
            runs.append([size])
    for run_ in runs:
        name = picks[run_[0]][0]
        if all(name == picks[size][1] for size in run_):
            continue
        first, last = sizes.index(run_[0]), sizes.index(run_[-1])
        low = _between(sizes[first - 1], run_[0]) if first else 0
        following = sizes[last + 1] if last + 1 < len(sizes) else run_[-1] * 8
        high = 0 if run_[-1] == BYTES[-1] else _between(run_[-1], following) - 1
        yield low, high, name


def _between(small: int, large: int) -> int:
    """Return the power of two nearest to the geometric mean of two sizes, the larger of two."""
    return 1 << ((small * large).bit_length() // 2)


def text() -> str:
    """Return the rules as a file."""
    head = [
        "# Made by `python scripts/priced.py rules > xupc/tuning/priced.toml`: cheapest variants",
        f"# on {NODES[0]} nodes and more by the model of `xupc predict`, where they are not the",
        "# default. Nothing was measured there; `xupc tune` writes rules that count more.",
        f"# tcp: machine {MACHINES['tcp']}; fabric: machine {MACHINES['fabric']}, assumed.",
        "version = 1\n",
    ]
    return "\n".join([*head, *map(text_of, rules())])


def main(words: list[str]) -> None:
    """Carry out one command."""
    match words:
        case ["rules"]:
            print(text(), end="")
        case ["prices", transport, *names] if transport in MACHINES and {*names} <= {*FORMS}:
            for collective in names:
                price(transport, collective)
        case _:
            sys.exit(
                f"usage: priced.py rules | prices {'|'.join(MACHINES)} COLLECTIVE...\n"
                f"COLLECTIVE is one of {', '.join(FORMS)}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
