"""Sizes of the selection table that had other names; they are still read, with a warning."""

from __future__ import annotations

__all__ = ["NEW_KEYS"]

NEW_KEYS = {  # old: new
    "buffer": "staging_bytes",
    "chain": "pipeline_min",
    "deposit": "direct_put_min",
    "flat": "few_nodes_max",
    "fold": "reduce_chunk",
    "folders": "parallel_fold_threads",
    "fuse": "fused_max",
    "get_piece": "rma_get_max",
    "lead": "root_exchange_max",
    "lead_block": "root_exchange_max_one_block",
    "message": "max_message",
    "messages": "max_messages",
    "nt_min": "nt_store_min",
    "reach": "direct_min",
    "reach_all": "direct_min_shared_source",
    "reach_each": "direct_min_alltoall",
    "reach_fold": "direct_reduce_max",
    "reach_pair": "direct_min_pair",
    "ring": "alltoall_chunk",
    "share": "rebalance_min",
    "slot": "eager_max",
    "stage": "staging_chunk",
    "tell": "notify_bytes",
    "wake": "fold_wakeup_min",
    "yields": "yields_before_sleep",
}
