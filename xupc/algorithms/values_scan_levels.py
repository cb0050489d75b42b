"""Scans of arrays of values by the levels below a node: each value enters each domain once.

A scan joins the values one after the other, so a domain cannot combine some of them first. All
threads' values come into each domain, as in gather_all, and each thread combines those up to its
own.
"""

from __future__ import annotations

from ..flags import MULTICORE
from ..plan.recorder import Recorder
from .conditions import by_name
from .registry import algorithm
from .values_levels import Staged, block_places, has_room
from .values_reduce_spec import ReduceSpec
from .values_scan_across_nodes import result_in_line


def _by_levels(t: Recorder, r: ReduceSpec, reverse: bool) -> None:
    places, width = block_places(t, t.size, r.nbytes, r.itemsize)
    staged = Staged(t, places, r.units(width))
    for u, (offset, size) in enumerate(staged.units):
        staged.put(u, r.src.on(t.me, offset))
        with staged.near(u) as parts:
            parts[t.me] = r.src.on(t.me, offset)
            needed = [parts[i] for i in r.operands(t.me, t.size, reverse)]
            result_in_line(t, r, offset, size, needed, reverse)
    staged.finish()


def forward(t: Recorder, r: ReduceSpec) -> None:
    """Bring all values into my domain; combine those up to mine."""
    _by_levels(t, r, False)


def backward(t: Recorder, r: ReduceSpec) -> None:
    """Bring all values into my domain; combine those from mine on."""
    _by_levels(t, r, True)


for _form in ("prefix", "suffix", "exclusive_prefix", "exclusive_suffix"):
    algorithm(
        f"allav_{_form}_reduce", MULTICORE, "levels",
        "Each value enters each socket and cache domain once; each thread combines those up to its "
        "own.", applies=has_room, preferred=by_name,
    )(backward if _form.endswith("suffix") else forward)  # fmt: skip
