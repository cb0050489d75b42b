"""Sizes as text: the one meaning that `64K` or `1MiB` has in options, variables and arguments."""

from __future__ import annotations

import re

__all__ = ["size_of"]

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) *(?:([KMGT])I?)?B?", re.ASCII | re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size_of(text: str) -> int:
    """Return the bytes of ``1048576``, ``64K``, ``64KB``, ``1.5MiB``; units are powers of 1024.

    A part of a byte is left out.

    Raises
    ------
    ValueError
        For any other text.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: expected a number of bytes like 8, 64K or 1MiB")
    whole, _, part = found[1].partition(".")
    decimals: int = 10 ** len(part)
    return (int(whole + part) << _SHIFT[(found[2] or "").upper()]) // decimals
