"""Decide the figures of a host from several launches of `host_probe`.

The unit is the launch, as everywhere: on a virtual machine the places of the cores change from one
launch to the next, and with them what is faster. A figure is taken only if it is better than the
built-in one beyond doubt. A wrong one would make all later programs slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..tuning.host_figures import HostFigures
from . import stats

__all__ = ["LONG", "PAST", "SIZES", "Launch", "best_start", "decided"]

SIZES = [1 << k for k in range(13, 22, 2)]
"""The bytes of the blocks that are moved."""
STARTS = [*SIZES, 2 * SIZES[-1]]
"""The sizes from which direct access may be used; the last one is beyond all sizes."""
LONG = (512 << 10, 1 << 20)
"""Bytes of values that a reduction may read directly, and that are copied first as built in."""
PAST = (10 << 20, 16 << 20)
"""Bytes of copies that, with what they are of, fill the last cache of some machines."""
GAIN = 0.9
"""Of the usual way's time that another one may take to be chosen."""


@dataclass(frozen=True)
class Launch:
    """Hold what a launch has measured, as medians over its rounds.

    Attributes
    ----------
    moves
        How many times as long staging takes as direct access: of one block, and of one both ways;
        in huge and in small pages; for each of `SIZES`.
    reductions
        How many times as long direct access takes as the faster other way, for each of `LONG`.
    past
        How many times as long copies past the cache take, for each of `PAST`.
    """

    moves: Sequence[Sequence[Sequence[float]]]
    reductions: Sequence[float]
    past: Sequence[float]


def decided(launches: Sequence[Launch], usual: HostFigures) -> dict[str, int]:
    """Return the figures that launches decide, with keys of `HostFigures`.

    Parameters
    ----------
    launches
        The launches of one host; fewer than three decide nothing.
    usual
        The figures that hold otherwise.
    """
    found: dict[str, int] = {}
    moves = np.array([launch.moves for launch in launches])
    for way, name in enumerate(("direct_min", "direct_min_pair")):
        start = best_start(moves[:, way], getattr(usual, name))
        if start is not None:
            found[name] = start
    if all(_pays([launch.reductions[k] for launch in launches]) for k in range(len(LONG))):
        found["direct_reduce"] = 1
    for k, nbytes in enumerate(PAST):
        if _pays([launch.past[k] for launch in launches]):
            found["nt_store_min"] = nbytes
            break
    return found


def _pays(ratios: Sequence[float]) -> bool:
    """Return whether a way takes certainly less than `GAIN` of the usual time; nan decides no."""
    return stats.estimated(ratios).high < GAIN


def best_start(moves: NDArray[np.float64], usual: int) -> int | None:
    """Return the size from which direct access pays most; None if the usual one may be as good.

    Parameters
    ----------
    moves
        How many times as long staging takes: by launch, huge and small pages, size. The longer a
        block, the likelier it is in huge pages.
    usual
        The size from which it is used now.
    """
    likely = np.linspace(0, 1, len(SIZES))
    logs = np.log(moves)
    gains = logs[:, 0] * likely + logs[:, 1] * (1 - likely)
    sums = np.zeros((len(gains), len(STARTS)))
    sums[:, :-1] = gains[:, ::-1].cumsum(axis=1)[:, ::-1]  # of all sizes from the start on
    now = next((k for k, start in enumerate(STARTS) if start >= usual), len(STARTS) - 1)
    better = np.exp(sums - sums[:, now : now + 1])
    error = stats.ERROR / (len(STARTS) - 1)
    found = {k: stats.estimated(better[:, k], error) for k in range(len(STARTS)) if k != now}
    sure = [k for k, each in found.items() if each.low > 1]
    return STARTS[max(sure, key=lambda k: found[k].value)] if sure else None
