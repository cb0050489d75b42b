"""What was measured on a host, and the sizes of a table that follow from it.

The figures are data: a job measures nothing when it starts, so plans do not vary from run to run.
`xupc tune` measures them and writes them to the user's table, in a section for the host. The
built-in table has figures for hosts without one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import record

__all__ = ["HUGE", "HostFigures"]

HUGE = 1 << 22
"""Bytes from which numpy asks for huge pages for an array."""
NO_LIMIT = 1 << 62


@record
class HostFigures:
    """The figures of one host.

    Attributes
    ----------
    direct_min, direct_min_pair
        The bytes from which direct access to private memory beats staging. In the first case one
        thread has a block for another one; in the second, each of two has a block for the other.
    direct_reduce
        1: reductions read values of any length directly. That is faster where the cores share no
        cache. 0: up to the tuned size.
    nt_store_min
        The bytes of one thread's copy that is faster past the cache; 0: none is.
    """

    direct_min: int
    direct_min_pair: int
    direct_reduce: int
    nt_store_min: int

    def within(self, tuning: Mapping[str, int], threads: int) -> dict[str, int]:
        """Return tuned sizes for so many threads, raised to these figures.

        Blocks in long arrays are an exception: a second copy would take them through memory again,
        and if their pages are huge ones, the kernel has fewer of them to look up.
        """
        part = HUGE // max(1, threads)
        least = {
            "direct_min": min(self.direct_min, part if threads > 2 else HUGE),
            "direct_min_pair": min(self.direct_min_pair, part),
            "direct_min_alltoall": min(self.direct_min_pair, part),
            "direct_min_shared_source": self.direct_min,
            "direct_reduce_max": NO_LIMIT if self.direct_reduce else 0,
        }
        return {**tuning, **{name: max(size, tuning[name]) for name, size in least.items()}}
