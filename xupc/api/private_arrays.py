"""Collectives on private arrays: the `allav_` calls.

The memory of a call belongs to one thread, so its sync flags have no effect. A call waits for its
data, and for threads that read its arrays directly. Threads that wait for each other detect a
difference between their calls before they take data; the others detect it at the next call that
synchronises.
"""

from __future__ import annotations

from ..specs import SPECS
from .array_call import ArrayCall
from .array_permute import Permute
from .uneven_forms import ExchangeV, GatherAllV, GatherV, ScatterV

__all__ = [
    "allav_broadcast",
    "allav_exchange",
    "allav_exchange_v",
    "allav_gather",
    "allav_gather_v",
    "allav_gather_all",
    "allav_gather_all_v",
    "allav_permute",
    "allav_prefix_reduce",
    "allav_reduce",
    "allav_reduce_all",
    "allav_reduce_scatter",
    "allav_scatter",
    "allav_scatter_v",
    "allav_suffix_reduce",
]


allav_broadcast = ArrayCall(SPECS["broadcast"])
allav_scatter = ArrayCall(SPECS["scatter"])
allav_gather = ArrayCall(SPECS["gather"])
allav_gather_all = ArrayCall(SPECS["gather_all"])
allav_exchange = ArrayCall(SPECS["exchange"])
allav_permute = Permute(SPECS["permute"])
allav_reduce = ArrayCall(SPECS["reduce"])
allav_reduce_all = ArrayCall(SPECS["reduce_all"])
allav_reduce_scatter = ArrayCall(SPECS["reduce_scatter"])
allav_prefix_reduce = ArrayCall(SPECS["prefix_reduce"])
allav_suffix_reduce = ArrayCall(SPECS["suffix_reduce"])
allav_scatter_v = ScatterV()
allav_gather_v = GatherV()
allav_gather_all_v = GatherAllV()
allav_exchange_v = ExchangeV()
