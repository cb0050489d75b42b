"""Examples with one mistake each, which they must notice: ``... CASE [MISTAKE]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import fft
import is_sort
import lookup_table
import numpy as np
import poisson
import sample_sort
import sobel
from support.cases import case, run_case

import xupc

FFT: Any = fft
IS_SORT: Any = is_sort
LOOKUP_TABLE: Any = lookup_table
POISSON: Any = poisson
SAMPLE_SORT: Any = sample_sort
SOBEL: Any = sobel


@case
def integer_sort(what: str) -> None:
    """A key that is not the specified one, or an order that is reversed."""
    make_keys, repeat = is_sort.make_keys, np.repeat

    def wrong(*args: Any) -> Any:
        keys = make_keys(*args)
        keys[100] = 0
        return keys

    if what == "a key":
        IS_SORT.make_keys = wrong
    else:
        IS_SORT.np.repeat = lambda *args: repeat(*args)[::-1]
    sys.exit(is_sort.main("S"))


@case
def solution() -> None:
    POISSON.WANTED = 0.1
    sys.exit(poisson.main(16, "pull"))


@case
def table() -> None:
    """A shared table gives twice the value."""
    look_up = lookup_table.look_up

    def wrong(table: Any, *rest: Any) -> Any:
        return look_up(table, *rest) * (1 + (not table.flags.writeable))

    LOOKUP_TABLE.look_up = wrong
    sys.exit(lookup_table.main(20000, 1000))


@case
def transform(what: str) -> None:
    init, fftn = fft.Cube.__init__, np.fft.fftn

    def without_exchange(cube: Any, *args: Any) -> None:
        init(cube, *args)
        cube.exchange = type("Nothing", (), {"algorithm": "none", "__call__": xupc.barrier})()

    def one_value_wrong(cube: Any) -> Any:
        spectrum = fftn(cube)
        spectrum[3, 2, 1] *= 1 + 1e-6
        return spectrum

    if what == "the time step":
        FFT.DIFFUSION *= 1 + 1e-9
    elif what == "the exchange":
        FFT.Cube.__init__ = without_exchange
    else:
        FFT.np.fft.fftn = one_value_wrong
    sys.exit(fft.main("S"))


@case
def sampled_sort(what: str) -> None:
    right = sample_sort.sample_sort

    def wrong(keys: Any) -> Any:
        result = right(keys)
        if what == "NOT SORTED":
            return result[::-1]
        return result[1:] if what == "LOST OR CHANGED" else result + (result > 1)

    SAMPLE_SORT.sample_sort = wrong
    sys.exit(sample_sort.main(5000))


@case
def edges(what: str) -> None:
    """A frame without the neighbours' rows, or brightness scaled by each thread's own edges."""
    right = sobel.scaled

    def without_neighbours(mine: Any) -> Any:
        pixels = mine.mine.local.reshape(mine.rows, mine.width)
        return SOBEL.np.pad(pixels[: mine.end - mine.first], 1, mode="edge")

    if what == "no rows of neighbours":
        SOBEL.Filter.framed = without_neighbours
    else:
        SOBEL.scaled = lambda found, _: right(found, int(found.max(initial=0)))
    sys.exit(sobel.main(100, ""))


run_case()
