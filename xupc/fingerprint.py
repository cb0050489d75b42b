"""64-bit hashes that are the same in every process."""

from __future__ import annotations

import hashlib

__all__ = ["fingerprint"]

_MASK = (1 << 64) - 1
_NAMES: dict[str, int] = {}


def _name(text: str) -> int:
    value = _NAMES.get(text)
    if value is None:
        digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
        value = int.from_bytes(digest, "little") >> 1
        if len(_NAMES) < 4096:
            _NAMES[text] = value
    return value


def fingerprint(name: str, *values: int | str) -> int:
    """The fingerprint of a call: its name and its single-valued arguments."""
    numbers = tuple(_name(v) if isinstance(v, str) else v for v in values)
    return hash((_name(name), *numbers)) & _MASK
