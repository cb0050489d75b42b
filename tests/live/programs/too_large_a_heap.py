"""init with a first heap that a host cannot hold. No arguments."""

from __future__ import annotations

import xupc

xupc.init(heap_size="100MB")
