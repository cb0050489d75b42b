"""64-bit hashes that are the same in every process."""

from __future__ import annotations

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL besides, which takes a start 3 ms
except ImportError:
    from hashlib import blake2b

__all__ = ["digest", "fingerprint", "hashed", "numbers"]

_MASK = (1 << 64) - 1
_NAMES: dict[str, int] = {}


def _name(text: str) -> int:
    value = _NAMES.get(text)
    if value is None:
        value = int.from_bytes(digest(text.encode(errors="replace"), 8), "little") >> 1
        if len(_NAMES) < 4096:
            _NAMES[text] = value
    return value


def digest(data: bytes, size: int) -> bytes:
    """Return a hash of `size` bytes, the same on all machines."""
    return blake2b(data, digest_size=size).digest()


def numbers(name: str, *values: int | str) -> tuple[int, ...]:
    """Return a name and values as the numbers of a fingerprint."""
    return (_name(name), *(_name(v) if isinstance(v, str) else v for v in values))


def hashed(values: tuple[int, ...]) -> int:
    """Return the fingerprint of `numbers`."""
    return hash(values) & _MASK


def fingerprint(name: str, *values: int | str) -> int:
    """Return the fingerprint of a call: its name and its single-valued arguments."""
    return hashed(numbers(name, *values))
