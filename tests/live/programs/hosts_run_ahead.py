"""Hosts that leave a long call and are in the next one while others are still in it: no mismatch.

    hosts_run_ahead.py ROUNDS
"""

from __future__ import annotations

import sys

import numpy as np

import xupc

NBYTES = 2 << 20  # on a link of 1 Gbit/s the last host waits for long enough to look round


def main() -> None:
    """Scatter large blocks, then at once broadcast a small one."""
    xupc.init(timeout=30)
    n, me = xupc.THREADS, xupc.MYTHREAD
    blocks = xupc.all_alloc(n * NBYTES, blocksize=0)
    mine = xupc.all_alloc(n * NBYTES, blocksize=NBYTES)
    word, words = xupc.all_alloc(8, blocksize=0), xupc.all_alloc(n * 8, blocksize=8)
    for r in range(int(sys.argv[1])):
        if me == 0:
            blocks.local[:] = np.repeat(np.arange(n, dtype=np.uint8) + r, NBYTES)
            word.local[:] = r
        xupc.all_scatter(mine, blocks, NBYTES)
        xupc.all_broadcast(words, word, 8)
        assert (mine.local == me + r).all()
        assert (words.local == r).all()
    if me == 0:
        print("done")
    xupc.finalize()


if __name__ == "__main__":
    main()
