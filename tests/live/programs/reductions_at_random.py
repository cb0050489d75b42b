"""Computational collectives at random: forms, types, operations, layouts, flags, against numpy.

Arguments: how many cases, and a seed. Under ALLSYNC a neighbour writes the input just before a
call and reads the output just after it; under MYSYNC each thread does so with its own.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
from reduction_cases import (
    FORMS,
    FUNCTIONS,
    OTHER_TYPES,
    PAIRS,
    RECORD_FUNCTIONS,
    UPC_TYPES,
    Memory,
    case,
    operations,
    values,
)
from support.checked_calls import ALGORITHMS, SYNC, Dawdle, done

import xupc

FEW = 3


def kinds(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """(form, dtype, operation, function): all of them if there are enough."""
    every: list[tuple[Any, ...]] = []
    for form in FORMS:
        for name in UPC_TYPES + OTHER_TYPES + PAIRS:
            dtype = np.dtype(name)
            every += [(form, dtype, op, None) for op in operations(dtype)]
            if dtype.kind == "c":
                every.append((form, dtype, *FUNCTIONS[-1]))
            elif dtype.names:
                every += [(form, dtype, *chosen) for chosen in RECORD_FUNCTIONS]
            else:
                every += [(form, dtype, *chosen) for chosen in FUNCTIONS]
    rng.shuffle(every)
    return (every * (1 + count // len(every)))[:count]


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    team = xupc.init(timeout=30)
    rng, numbers, dawdle = random.Random(seed), np.random.default_rng(seed), Dawdle(seed)
    memory = Memory()
    T, me = xupc.THREADS, xupc.MYTHREAD
    modes, ways = list(SYNC), list(ALGORITHMS)
    for k, (form, dtype, op, func) in enumerate(kinds(rng, count)):
        c = case(rng, form, dtype, op, func)
        into, out = rng.choice([("ALLSYNC", "ALLSYNC"), rng.choice(modes)])
        way = rng.choice(ways)
        flags = SYNC[into, out] | ALGORITHMS[way] | rng.choice([0, xupc.REPRODUCIBLE])
        what = (seed, k, way or "no flag", into, out)
        arguments = memory.arguments(c, flags)
        call = (lambda a=arguments, f=form: FORMS[f](*a)) if k % 4 else FORMS[form].plan(*arguments)
        writes = (me + 1) % T if into == "ALLSYNC" else me
        reads = (me + 1) % T if out == "ALLSYNC" else me
        together = into == out != "NOSYNC"
        operands = [values(dtype, op, c.n, numbers) for _ in range(2)]
        wanted = [c.wanted(x, reads) for x in operands]  # the oracle takes longer than a call
        xupc.barrier()
        for repetition in range(FEW):
            if repetition and not together:
                xupc.barrier()
            memory.write(c, operands[repetition % 2], writes)
            if into == "NOSYNC":
                xupc.barrier()
            dawdle()
            assert call() is None
            if out == "NOSYNC":
                xupc.barrier()
            memory.check(c, wanted[repetition % 2], reads, (*what, repetition))
    team.barrier()
    done(count)


main()
