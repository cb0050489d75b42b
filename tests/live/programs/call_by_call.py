"""Errors that threads detect in different calls, each caught there: no thread is a call behind."""

import numpy as np

import xupc

team = xupc.init()
ME, THREADS = xupc.MYTHREAD, xupc.THREADS
ERRORS = TypeError, ValueError, xupc.XupcError
D, S = (xupc.all_alloc(8 * THREADS, np.uint8, 8) for _ in range(2))
A = xupc.all_alloc(THREADS, np.int32)
NOSYNC = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
odd = THREADS - 1
wrong = odd == ME

CALLS = {
    "a bad value": lambda: xupc.allv_gather(object() if wrong else 1, 0),
    "another type": lambda: xupc.allv_gather(1.0 if wrong else 1, 0),
    "other types from the root": lambda: xupc.allv_broadcast(1 if ME == 0 else 1.5, 0),
    "a bad size": lambda: xupc.all_broadcast(D, S, 0 if wrong else 2, NOSYNC),
    "another size": lambda: xupc.all_broadcast(D, S, 1 if wrong else 2, NOSYNC),
    "another root": lambda: xupc.all_broadcast(D, S + 8 * wrong, 2, NOSYNC),
    "a barrier instead": lambda: xupc.barrier() if wrong else xupc.all_gather(D, S, 1, 0),
    "a bad array": lambda: xupc.allav_gather(np.empty(THREADS), None if wrong else np.ones(1), 0),
}
number = 0
for what, call in CALLS.items():
    raised = 0
    try:
        call()
    except ERRORS:
        raised += 1
    try:
        xupc.barrier()
    except ERRORS:
        raised += 1
    assert raised, what
    for _ in range(3):  # a thread that is a call behind has another number
        number += 1
        xupc.barrier(number)
    A[ME] = number
    xupc.barrier()
    assert list(A[:]) == [number] * THREADS, (what, A[:])
    xupc.barrier()

# All caught together: what a thread has left out it does not make up for.
try:
    xupc.allv_gather(object() if wrong else 1, 0)
    xupc.barrier(-1)
    raise AssertionError("nobody heard of it")
except ERRORS:
    pass
for _ in range(3):
    number += 1
    xupc.barrier(number)
try:
    xupc.allv_gather(object() if wrong else 1, 0)
    xupc.barrier()
    raise AssertionError("nobody heard of it")
except ERRORS:
    pass
xupc.barrier()  # the same call, at another place: all make it
for _ in range(3):
    number += 1
    xupc.barrier(number)
print("done", flush=True)
