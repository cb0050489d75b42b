"""Flag bits of the collectives: synchronisation, algorithm, and modifiers.

Plain ints are used inside the library: one ``|`` of an IntFlag costs half a
microsecond.  UPC 1.3, section 7.4.1; the algorithm bits are the XUPC paper's.
"""

from __future__ import annotations

import zlib
from enum import IntFlag
from functools import lru_cache
from typing import Final

from .errors import FlagError

__all__ = [
    "ALGORITHM_NAMES", "Flags", "algorithm_name", "check_flags", "flag_names", "sync_modes",
    "variant_label", "with_variant",
]  # fmt: skip


class Flags(IntFlag):
    """Bits for the ``flags`` argument of every collective.

    ``IN_*`` says when data may first be touched, ``OUT_*`` what a return
    promises; without one of them ALLSYNC is meant.  ``PULL``, ``PUSH`` and
    ``MULTICORE`` pick the algorithm; without one the library chooses.
    ``EXCLUSIVE`` makes a prefix or suffix reduction leave out each element's own value.
    """

    IN_NOSYNC = 1 << 0
    IN_MYSYNC = 1 << 1
    IN_ALLSYNC = 1 << 2
    OUT_NOSYNC = 1 << 3
    OUT_MYSYNC = 1 << 4
    OUT_ALLSYNC = 1 << 5
    PULL = 1 << 6
    PUSH = 1 << 7
    MULTICORE = 1 << 8
    IN_PLACE = 1 << 9
    ASYNC = 1 << 10
    REPRODUCIBLE = 1 << 11
    EXCLUSIVE = 1 << 12


IN_NOSYNC: Final = 1 << 0
IN_MYSYNC: Final = 1 << 1
IN_ALLSYNC: Final = 1 << 2
OUT_NOSYNC: Final = 1 << 3
OUT_MYSYNC: Final = 1 << 4
OUT_ALLSYNC: Final = 1 << 5
PULL: Final = 1 << 6
PUSH: Final = 1 << 7
MULTICORE: Final = 1 << 8
IN_PLACE: Final = 1 << 9
ASYNC: Final = 1 << 10
REPRODUCIBLE: Final = 1 << 11
EXCLUSIVE: Final = 1 << 12

IN_MASK: Final = IN_NOSYNC | IN_MYSYNC | IN_ALLSYNC
OUT_MASK: Final = OUT_NOSYNC | OUT_MYSYNC | OUT_ALLSYNC
ALGORITHM_MASK: Final = PULL | PUSH | MULTICORE
ALL_BITS: Final = (1 << 13) - 1

_SCANS: Final = ("prefix_reduce", "suffix_reduce")

ALGORITHM_NAMES: Final = {PULL: "pull", PUSH: "push", MULTICORE: "multicore"}


# Above the flags there is room for a variant of an algorithm: a hash of its label, the same on all
# threads. So a call that names one differs from all others wherever flags are compared.
VARIANT_SHIFT: Final = ALL_BITS.bit_length()
_LABELS: dict[int, str] = {}


def with_variant(flags: int, label: str) -> int:
    """Return flags that also name a variant of their algorithm, such as ``ring``."""
    if not label:
        return flags
    code = zlib.crc32(label.encode()) or 1
    if _LABELS.setdefault(code, label) != label:
        raise ValueError(f"{label!r} has the same hash as {_LABELS[code]!r}: choose another name")
    return flags | code << VARIANT_SHIFT


def variant_label(flags: int) -> str:
    """Return the label of the variant that flags name; "" if they name none."""
    return _LABELS.get(flags >> VARIANT_SHIFT, "") if flags >> VARIANT_SHIFT else ""


def algorithm_name(flag: int, label: str) -> str:
    """Return the name of a variant: ``multicore:ring``, ``pull``, or ``multicore/2`` (two roots).

    Parameters
    ----------
    flag : int
        PULL, PUSH or MULTICORE.
    label : str
        That of the variant; "" for the default one. Behind a slash: roots per node.
    """
    colon = ":" if label and not label.startswith("/") else ""
    return f"{ALGORITHM_NAMES[flag]}{colon}{label}"


def flag_names(flags: int) -> str:
    """Return ``"IN_MYSYNC|PULL"`` for the bits that are set, ``"0"`` for none."""
    label = variant_label(flags)
    names = (str(f.name) for f in Flags if flags & f)
    tail = f"{':' if label[:1] != '/' else ''}{label}" if label else ""
    shown = (f"{n}{tail}" if Flags[n] & ALGORITHM_MASK else n for n in names)
    return "|".join(shown) or "0"


@lru_cache(maxsize=1024)
def check_flags(flags: int, call: str, collective: str = "") -> int:
    """Return the flags with both sync modes filled in; FlagError if they contradict.

    `collective`: what the call carries out, if its name does not say it.
    """
    flags = int(flags)
    if flags & ~ALL_BITS and not variant_label(flags):
        raise FlagError(f"{call}: flags: {flags:#x} has bits that are no xupc flag")
    for mask, what in ((IN_MASK, "IN"), (OUT_MASK, "OUT"), (ALGORITHM_MASK, "algorithm")):
        bits = flags & mask
        if bits & (bits - 1):
            raise FlagError(f"{call}: flags: at most one {what} flag, got {flag_names(bits)}")
    if flags & EXCLUSIVE and not any(scan in (collective or call) for scan in _SCANS):
        raise FlagError(
            f"{call}: flags: EXCLUSIVE is for prefix and suffix reductions, got {flag_names(flags)}"
        )
    if not flags & IN_MASK:
        flags |= IN_ALLSYNC
    if not flags & OUT_MASK:
        flags |= OUT_ALLSYNC
    return flags


def sync_modes(flags: int) -> tuple[str, str]:
    """Return ``(in, out)`` of complete flags: each ``"no"``, ``"my"`` or ``"all"``."""
    return _mode(flags & IN_MASK, IN_MYSYNC, IN_ALLSYNC), _mode(
        flags & OUT_MASK, OUT_MYSYNC, OUT_ALLSYNC
    )


def _mode(bits: int, my: int, all_: int) -> str:
    return "my" if bits == my else "all" if bits == all_ else "no"
