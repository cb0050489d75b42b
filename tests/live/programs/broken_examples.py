"""Examples with one mistake each, which they must notice: ``... CASE [MISTAKE]``.

Each thread prints the status that it would exit with; in the case ``exits`` it exits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def instead(of: object, name: str, value: object) -> Iterator[None]:
    """Give an object another attribute, for a while: other programs run in this process later."""
    right = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, right)


def ended(status: int) -> None:
    """Print an example's status, a whole line at once."""
    sys.stdout.write(f"status {status}\n")


@case
def integer_sort(what: str) -> None:
    """A key that is not the specified one, or an order that is reversed."""
    make_keys, repeat = is_sort.make_keys, np.repeat

    def wrong(*args: Any) -> Any:
        keys = make_keys(*args)
        keys[100] = 0
        return keys

    mistakes = {
        "a key": instead(is_sort, "make_keys", wrong),
        "the order": instead(np, "repeat", lambda *args: repeat(*args)[::-1]),
    }
    with mistakes[what]:
        ended(is_sort.main("S"))


def with_another_result() -> int:
    with instead(poisson, "WANTED", 0.1):
        return poisson.main(16, "pull")


@case
def solution() -> None:
    ended(with_another_result())


@case
def exits() -> None:
    sys.exit(with_another_result())


@case
def table() -> None:
    """A shared table gives twice the value."""
    look_up = lookup_table.look_up

    def wrong(table: Any, *rest: Any) -> Any:
        return look_up(table, *rest) * (1 + (not table.flags.writeable))

    with instead(lookup_table, "look_up", wrong):
        ended(lookup_table.main(20000, 1000))


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

    mistakes = {
        "the time step": instead(fft, "DIFFUSION", fft.DIFFUSION * (1 + 1e-9)),
        "the exchange": instead(fft.Cube, "__init__", without_exchange),
        "one value of the spectrum": instead(np.fft, "fftn", one_value_wrong),
    }
    with mistakes[what]:
        ended(fft.main("S"))


@case
def sampled_sort(what: str) -> None:
    right = sample_sort.sample_sort

    def wrong(keys: Any) -> Any:
        result = right(keys)
        if what == "NOT SORTED":
            return result[::-1]
        return result[1:] if what == "LOST OR CHANGED" else result + (result > 1)

    with instead(sample_sort, "sample_sort", wrong):
        ended(sample_sort.main(5000))


@case
def edges(what: str) -> None:
    """A frame without the neighbours' rows, or brightness scaled by each thread's own edges."""
    right = sobel.scaled

    def without_neighbours(mine: Any) -> Any:
        pixels = mine.mine.local.reshape(mine.rows, mine.width)
        return np.pad(pixels[: mine.end - mine.first], 1, mode="edge")

    def by_own_edges(found: Any, _: Any) -> Any:
        return right(found, int(found.max(initial=0)))

    mistakes = {
        "no rows of neighbours": instead(sobel.Filter, "framed", without_neighbours),
        "no strongest edge": instead(sobel, "scaled", by_own_edges),
    }
    with mistakes[what]:
        ended(sobel.main(100, ""))


run_case()
