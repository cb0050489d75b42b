"""Cached calls on private arrays: the next call uses its own arguments."""

import numpy as np

import xupc

xupc.init()
ME, THREADS = xupc.MYTHREAD, xupc.THREADS
N = 4

# Off the root dst is ignored, whatever it is: src itself, then something else.
mine, junk = np.full(N, ME + 1.0), np.full(N, -99.0)
gathered, reduced = np.zeros(N * THREADS), np.zeros(N)
for ignored in (mine, junk, None, mine):
    xupc.allav_gather(gathered if ME == 0 else ignored, mine, 0)
    xupc.allav_reduce(reduced if ME == 0 else ignored, mine, xupc.ADD, 0)
    if ME == 0:
        assert gathered.tolist() == np.repeat(np.arange(THREADS) + 1.0, N).tolist(), gathered
        assert reduced.tolist() == [THREADS * (THREADS + 1) / 2] * N, reduced
        gathered[:] = reduced[:] = 0
whole = np.repeat(np.arange(THREADS) + 1.0, N)
for ignored in (mine, junk, None, mine):
    xupc.allav_scatter(mine, whole if ME == 0 else ignored, 0)
    assert mine.tolist() == [ME + 1.0] * N, mine
xupc.barrier()
print("done", flush=True)
