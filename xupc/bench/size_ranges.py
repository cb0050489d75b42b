"""Choices at measured sizes, as ranges of sizes: the part that all tuners share.

Every change from one size to the next counts as a loss of `GAIN`, so there are few ranges. The
limit between two measured sizes is their geometric mean. Ranges end half a step beyond the smallest
and the largest measured size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

__all__ = ["GAIN", "Choice", "Range", "cheapest", "chosen_at", "ranges"]

GAIN = 1.02
SMALLEST = 8  # from here down nothing changes any more
STEP = 2.0  # from one size to the next, if only one was measured

Choice = str | None
"""A name; None: what the table chooses without a rule of the tuner."""
Range = tuple[int, int | None, str]
"""The smallest and the largest size, and the name; None: there is no largest."""


def cheapest(costs: Sequence[Mapping[Choice, float]]) -> list[Choice]:
    """Return one choice for each size, such that costs and changes from size to size are least."""
    paths: dict[Choice, tuple[float, list[Choice]]] = {None: (0.0, [])}
    for number, here in enumerate(costs):
        price = math.log(GAIN) if number else 0.0
        ways = {
            choice: min(
                ((cost + price * (choice != last), path) for last, (cost, path) in paths.items()),
                key=itemgetter(0),
            )
            for choice in here
        }
        paths = {c: (cost + here[c], [*path, c]) for c, (cost, path) in ways.items()}
    return min(paths.values(), key=itemgetter(0))[1]


def ranges(
    sizes: Sequence[int], chosen: Mapping[int, Choice], old: Sequence[Range]
) -> Iterator[Range]:
    """Yield the ranges that need a rule; old ones stay where nothing new is known.

    Parameters
    ----------
    sizes
        All sizes of the measurement, in order.
    chosen
        The choice at each size whose measurement permits one.
    old
        The ranges so far.
    """
    new = [
        (least, most, chosen[size])
        for size, (least, most) in zip(sizes, _parts(sizes), strict=True)
        if size in chosen
    ]
    edges = {0} | {least for least, _, _ in old}
    edges |= {most + 1 for _, most, _ in old if most is not None}
    edges |= {edge for least, most, _ in new for edge in (least, most + 1)}

    def choice_at(nbytes: int) -> Choice:
        here = [choice for least, most, choice in new if least <= nbytes <= most]
        return here[0] if here else chosen_at(old, nbytes)

    runs = [
        (choice, next(same)) for choice, same in itertools.groupby(sorted(edges), key=choice_at)
    ]
    ends = [begin - 1 for _, begin in runs[1:]]
    for (choice, begin), end in zip(runs, [*ends, None], strict=True):
        if choice is not None:
            yield begin, end, choice


def chosen_at(found: Sequence[Range], nbytes: int) -> Choice:
    """Return the name that the first range with a size has; None if no range has it."""
    for least, most, name in found:
        if least <= nbytes and (most is None or nbytes <= most):
            return name
    return None


def _parts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return (least, most): each size with half of the steps to its neighbours."""
    if not sizes:
        return []
    first, last = sizes[0], sizes[-1]
    down = sizes[1] / first if len(sizes) > 1 else STEP
    up = last / sizes[-2] if len(sizes) > 1 else STEP
    most = [math.isqrt(a * b) for a, b in itertools.pairwise(sizes)]
    most.append(int(last * math.sqrt(up)))
    least = [0 if first <= SMALLEST else math.ceil(first / math.sqrt(down))]
    least += [limit + 1 for limit in most[:-1]]
    return list(zip(least, most, strict=True))
