"""Signatures and argument docstrings of the calls on private arrays."""

from __future__ import annotations

import inspect

from ..specs import CollectiveSpec

__all__ = [
    "FLAGS_AND_TEAM",
    "RETURNED",
    "WORDS",
    "about_dst",
    "about_src",
    "argument_names",
    "signature_with",
]


WORDS = {
    "values": "ndarray, n elements\n        The root's; overwritten on the others.",
    "to": "int\n        The thread that gets this thread's values; all together a permutation.",
    "op": "Op\n        ``xupc.ADD`` and so on, or as ``np.add`` or ``MPI.SUM``; with FUNC and\n"
    "        NONCOMM_FUNC comes `func`. Records of a value and an index have MINLOC and MAXLOC,\n"
    "        any records FUNC.",
    "root": "int\n        A thread, by its rank in the team.",
    "func": "callable, optional\n        Of two scalars or records; a numpy ufunc, or what "
    "`xupc.vectorized` marks, of two arrays.",
}

FLAGS_AND_TEAM = """flags : int
        `xupc.Flags`; sync flags are accepted and change nothing, no algorithm flag lets the
        library choose. With ASYNC the call is only started.
    team : Team, optional
        Threads that call; default all."""
RETURNED = """None or Handle
        A handle with ASYNC; do not use the arrays until it is complete."""


def about_dst(spec: CollectiveSpec) -> str:
    """Return the docstring of `dst`."""
    elements = _elements(spec.dst.blocks)
    if not spec.dst.everywhere:
        return f"ndarray, {elements}\n        The root's; None elsewhere, or ignored."
    text = f"ndarray, {elements}\n        Where the result goes."
    if spec.scans:
        end = "last" if spec.backward else "first"
        text += (
            " With the flag EXCLUSIVE it is without this thread's\n        own values; on the "
            f"{end} thread it is the operation's identity, but with `func` dst\n        stays as "
            "it was."
        )
    return text


def about_src(spec: CollectiveSpec) -> str:
    """Return the docstring of `src`."""
    elements = _elements(spec.src.blocks)
    if not spec.src.everywhere:
        return f"ndarray, {elements}\n        The root's; None elsewhere, or ignored."
    if spec.transforms:
        own = ", as block MYTHREAD of it" if spec.dst != spec.src else ""
        return (
            f"ndarray, {elements}, or None\n        What this thread gives. "
            f"None, or dst itself: it is in dst{own}, which is\n        changed in place."
        )
    return f"ndarray, {elements}\n        What this thread gives."


def _elements(blocks: int | str) -> str:
    return "T * n elements" if blocks == "T" else "n elements"


def argument_names(spec: CollectiveSpec) -> tuple[str, ...]:
    """Return the names of the arguments, in order."""
    arrays = ("values",) if spec.one_array else ("dst", "src")
    to = ("to",) if spec.permutes else ()
    op = ("op",) if spec.computes else ()
    root = ("root",) if spec.root else ()
    func = ("func",) if spec.computes else ()
    return (*arrays, *to, *op, *root, *func, "flags", "team")


def signature_with(names: tuple[str, ...]) -> inspect.Signature:
    """Return the signature that users see."""
    optional = {"func": None, "flags": 0, "team": None}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    named = inspect.Parameter("algorithm", inspect.Parameter.KEYWORD_ONLY, default=None)
    return inspect.Signature(
        [*(inspect.Parameter(x, kind, default=optional.get(x, empty)) for x in names), named]
    )
