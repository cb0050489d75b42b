"""Every algorithm on every placement of up to eight threads, under the race detector.

A placement is a partition of the threads into nodes; which node is called what does not matter,
which threads it has does, since they are numbered. Each algorithm runs once on each of them, with
a root, a size, sync modes and a tuning that differ from one to the next: all placements, and a
sample of their product with the rest. An ordinary run takes a sample of the placements, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import Any, NamedTuple

import pytest
from simulated import neighbours, reductions, transfers, values
from simulated.matrix import ENTRIES, SYNCS, TUNINGS, Planner, Story, another, partitions, roots_of
from simulated.pool import Progress, workers
from support.soak import WHOLE, figure, part, seed, share

from xupc.algorithms.registry import Entry, find, registered
from xupc.backends.simulator.errors import RaceError
from xupc.flags import ALGORITHM_NAMES, MULTICORE
from xupc.plan.plan import Plan
from xupc.topology.tree import Tree

THREADS = 8
SHARD = 25
AT_ONCE = 200
"""Shards that are handed out together."""
BELL = [1, 2, 5, 15, 52, 203, 877, 4140]
PLACEMENTS = [tuple(x) for n in range(1, THREADS + 1) for x in partitions(n)]
SAMPLE = share(5)
"""Placements of each algorithm in an ordinary run."""

pytestmark = [pytest.mark.soak, pytest.mark.once]


class Algorithm(NamedTuple):
    """A registered algorithm, or a way to call it; `kind` names its oracle."""

    kind: str
    collective: str
    flag: int


ALGORITHMS = [
    *(Algorithm("data", entry.collective, entry.flag) for entry in ENTRIES),
    *(Algorithm("lists", entry.collective, entry.flag) for entry in transfers.ENTRIES),
    *(
        Algorithm("reductions", form, flag)
        for form in reductions.ALL_FORMS
        for flag in ALGORITHM_NAMES
    ),
    *(
        Algorithm("reductions in place", form, flag)
        for form in reductions.IN_PLACE
        for flag in ALGORITHM_NAMES
    ),
    *(
        Algorithm("values", form, flag)
        for form in values.MOVES + values.JOINS
        for flag in ALGORITHM_NAMES
    ),
    *(Algorithm("neighbours", neighbours.NAME, flag) for flag in ALGORITHM_NAMES),
]


def _data(entry: Entry, labels: tuple[int, ...], rng: random.Random, mutate: Any = None) -> None:
    """Twice the same root and size, then others, a different collective, and the first again."""
    sync, (tuning, sizes) = rng.choice(SYNCS), rng.choice(list(TUNINGS.values()))
    roots = roots_of(entry, len(labels), rng.randrange(1000))
    n, m, root = rng.choice(sizes), rng.choice(sizes), rng.choice(roots)
    told = Story(Planner(Tree(labels), mutate), len(labels) * max(sizes), rng.randrange(1000))
    other = another(entry, rng.randrange(1000))
    for one, at, nbytes in (
        (entry, root, n),
        (entry, root, n),
        (entry, rng.choice(roots), m),
        (other, rng.choice(roots_of(other, len(labels))), m),
        (entry, root, n),
    ):
        told.call(one, at, nbytes, sync, tuning, tight=rng.random() < 0.7)
    told.run(rng.choice((None, 1)))


def _run(algorithm: Algorithm, labels: tuple[int, ...]) -> None:
    kind, name, flag = algorithm
    rng = random.Random(f"{seed()} {algorithm} {labels}")
    sync, tuning, number = rng.choice(SYNCS), rng.choice(list(TUNINGS)), rng.randrange(1 << 30)
    schedule = rng.choice((None, number))
    if kind == "data":
        _data(find(name, flag), labels, rng)
    elif kind == "lists":
        n = rng.choice((1, 5, 13, 17))
        transfers.Case(find(name, flag), labels, sync, tuning, n, number % 6).run(schedule)
    elif kind == "neighbours":
        neighbours.Case(flag, labels, tuning, number).run(schedule)
    elif kind == "values":
        values.Case(name, flag, labels, tuning, rng.random() < 0.5, number).run(schedule)
    else:
        in_place, ordered = kind.endswith("in place"), rng.random() < 0.5
        case = reductions.Case(name, flag, labels, sync, tuning, ordered, number, in_place)
        case.run(seed=schedule)


Work = tuple[Algorithm, tuple[int, ...]]


def run_all(shard: list[Work]) -> list[str]:
    """Failures, as text."""
    failures = []
    for algorithm, labels in shard:
        try:
            _run(algorithm, labels)
        except Exception as problem:
            text = f"{algorithm} on {list(labels)}: {type(problem).__name__}: {problem}"
            failures.append(f"{text[:2000]} {getattr(problem, '__notes__', '')}")
    return failures


def _shards() -> Iterator[list[Work]]:
    rng = random.Random(seed())
    shard: list[Work] = []
    for algorithm in ALGORITHMS:
        for labels in part(PLACEMENTS) if WHOLE else rng.sample(PLACEMENTS, SAMPLE):
            shard.append((algorithm, labels))
            if len(shard) == SHARD:
                yield shard
                shard = []
    yield shard


def _in_turn(
    pool: Executor, shards: Iterator[list[Work]]
) -> Iterator[tuple[list[Work], list[str]]]:
    """What was done and what failed; as `map`, but not all at once: there are very many."""
    while several := list(islice(shards, AT_ONCE)):
        yield from zip(several, pool.map(run_all, several), strict=True)


def test_every_algorithm_on_every_placement(capsys: pytest.CaptureFixture[str]) -> None:
    """No race, no deadlock, every byte right."""
    chosen = len(part(PLACEMENTS)) if WHOLE else SAMPLE
    cases, done = len(ALGORITHMS) * chosen, 0
    progress = Progress(capsys, "algorithms on placements", cases)
    failures: list[str] = []
    try:
        with workers() as pool:
            for shard, found in _in_turn(pool, _shards()):
                done += len(shard)
                failures += found
                progress.tell(done, len(failures))
                if len(failures) > 20:
                    break
    finally:  # what was done counts, even if it is interrupted
        figure(
            "races, every algorithm on every placement",
            f"{len(failures)} of {done} cases fail, of {cases}: {len(ALGORITHMS)} algorithms on "
            f"{chosen} of {len(PLACEMENTS)} placements of up to {THREADS} threads each",
        )
    assert not failures, f"{len(failures)} fail:\n" + "\n".join(failures[:5])


def test_placements_are_all() -> None:
    """Their numbers are Bell's, and no two are the same tree."""
    assert [n for _, n in sorted(Counter(len(x) for x in PLACEMENTS).items())] == BELL
    some = random.Random(seed()).sample(PLACEMENTS, 500)
    assert len({Tree(labels) for labels in some}) == len(some)


def test_algorithms_are_all() -> None:
    """None that is registered is left out; some are the functions of an `_x` form."""
    names = {(f"allav_{c}" if kind == "values" else c, flag) for kind, c, flag in ALGORITHMS}
    names |= {(c.replace("_x", "_v"), flag) for c, flag in names if c.endswith("_x")}
    names |= {("neighbour_exchange", flag) for flag in ALGORITHM_NAMES}
    assert names == {(entry.collective, entry.flag) for entry in registered()}


def test_a_broken_algorithm_is_noticed() -> None:
    """A wait dropped from a plan is a race on a placement of eight threads."""
    entry = find("broadcast", MULTICORE)

    def deaf(plan: Plan) -> Plan:
        from xupc.plan.steps import Wait
        from xupc.records import replace

        node, net = plan.lanes
        return replace(plan, lanes=(tuple(s for s in node if not isinstance(s, Wait)), net))

    def races(labels: tuple[int, ...]) -> bool:
        try:
            _data(entry, labels, random.Random(f"{labels}"), deaf)
        except Exception as problem:
            return isinstance(problem, RaceError)
        return False

    some = random.Random(1).sample([x for x in PLACEMENTS if len(x) == THREADS], 20)
    assert any(races(labels) for labels in some)
