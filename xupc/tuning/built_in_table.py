"""The built-in selection table for Python, since to parse TOML takes each start 10 ms.

Made of selection.toml by
`python scripts/reference.py built-in-table > xupc/tuning/built_in_table.py`.
"""

from __future__ import annotations

from ..flags import MULTICORE, PUSH
from .selection import Rule, Table

__all__ = ["TABLE"]

TABLE = Table(
    "built-in",
    (
        Rule("allav_exchange", PUSH, min_bytes=32768, nodes="many"),
        Rule("*", MULTICORE, nodes="many"),
        Rule("gather_all", PUSH, min_bytes=8193, max_bytes=4194304, nodes="one"),
        Rule("gather_all_v", PUSH, min_bytes=8193, max_bytes=4194304, nodes="one"),
        Rule("gather_all_x", PUSH, min_bytes=8193, max_bytes=4194304, nodes="one"),
        Rule("permute", PUSH, min_bytes=8193, max_bytes=1048576, nodes="one"),
        Rule("permute_v", PUSH, min_bytes=8193, max_bytes=1048576, nodes="one"),
        Rule("permute_x", PUSH, min_bytes=8193, max_bytes=1048576, nodes="one"),
        Rule("allav_scatter", PUSH, max_bytes=4095, min_threads=3, nodes="one"),
        Rule("*", MULTICORE, nodes="one"),
    ),
    {"default": {"chunk": 32768,
                 "alltoall_chunk": 524288,
                 "notify_bytes": 131072,
                 "max_message": 1048576,
                 "max_messages": 10000,
                 "rma_get_max": 65536,
                 "window": 16,
                 "fused_max": 16384,
                 "fold_wakeup_min": 65536,
                 "rebalance_min": 65536,
                 "root_exchange_max": 4096,
                 "root_exchange_max_one_block": 4096,
                 "pipeline_min": 32768,
                 "few_nodes_max": 8,
                 "nt_store_min": 8388608,
                 "reduce_chunk": 65536,
                 "staging_bytes": 1048576,
                 "eager_max": 1024,
                 "staging_chunk": 524288,
                 "direct_min": 4096,
                 "direct_min_pair": 4096,
                 "direct_min_alltoall": 16384,
                 "direct_min_shared_source": 262144,
                 "direct_reduce_max": 262144,
                 "tried": 1,
                 "direct_put_min": 65536,
                 "parallel_fold_threads": 4,
                 "yields_before_sleep": 0},
     "tcp": {"chunk": 16384,
             "root_exchange_max": 131072,
             "root_exchange_max_one_block": 262144,
             "fold_wakeup_min": 1048576,
             "reduce_chunk": 65536,
             "max_message": 262144,
             "staging_chunk": 131072,
             "window": 6},
     "mpich-tcp": {"alltoall_chunk": 32768},
     "openmpi-tcp": {"alltoall_chunk": 65280,
                     "max_message": 65280,
                     "reduce_chunk": 32768,
                     "chunk": 24576,
                     "notify_bytes": 49152,
                     "yields_before_sleep": 1000}},
    None,
    {"*": {"direct_min": 32768,
           "direct_min_pair": 32768,
           "direct_reduce": 0,
           "nt_store_min": 0}},
)
