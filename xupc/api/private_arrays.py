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
import inspect
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.values import transforms
from ..algorithms.values_reduce_scatter import ReduceScatter
from ..algorithms.values_reduce_spec import ReduceSpec
from ..backends.interpreter import interpreter as python_engine
from ..backends.native.native_core import core
from ..errors import FlagError, HeapError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import ASYNC, IN_PLACE, REPRODUCIBLE, check_flags
from ..health.call_record import CallRecord
from ..ops import Op
from ..reduction import kernels
from ..reduction.structured_dtypes import name as name_of
from ..runtime.async_queue import AsyncCall
from ..runtime.operand_binding import PrivateOperand
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import as_integer, flags_text, func_name, op_name
from .call_cache import BoundPlan
from .handles import Handle, post
from .team import resolve

__all__ = [
    "allav_broadcast",
    "allav_exchange",
    "allav_gather",
    "allav_gather_all",
    "allav_permute",
    "allav_prefix_reduce",
    "allav_reduce",
    "allav_reduce_all",
    "allav_reduce_scatter",
    "allav_scatter",
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
