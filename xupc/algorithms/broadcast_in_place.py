"""all_broadcast_in_place, and all_broadcast with IN_PLACE: to every thread but the root.

::

    before   dst@0: a   src@root: B   dst@2: c      after   dst@0: B   dst@2: B

The variants of `broadcast` without the copy at the root, where src may be dst itself.
"""

from __future__ import annotations

from . import (  # noqa: F401  (they register the variants that follow)
    broadcast,
    broadcast_circulant,
    broadcast_levels,
)
from .registry import derive
from .scatter import own_block_stays

derive("broadcast_in_place", "broadcast", own_block_stays)
