"""An all-gather of your own: blocks go around a ring of all threads, 20 lines outside the package.

The library simulates it on the placement of the job before its first run, and refuses it if it has
a race or a deadlock, or moves a wrong byte::

    xupc run -n 4 examples/own_gather_all.py
    xupc run -n 4 --nodes 2x2 examples/own_gather_all.py
    XUPC_ALGORITHMS=examples/own_gather_all.py xupc bench all_gather_all -n 4 \\
        --nodes 2x2 --flags auto,multicore:thread_ring
"""

import sys

import numpy as np

import xupc


@xupc.algorithm(
    "all_gather_all", xupc.MULTICORE, "thread_ring",
    "Each thread passes on to the next one what came from the one before.",
)  # fmt: skip
def thread_ring(t, dst, src, nbytes):
    before, behind = (t.me - 1) % t.size, (t.me + 1) % t.size
    t.ready("all", "all")  # all threads have entered: their dst may be written
    passed = t.channel()
    t.copy(dst.on(t.me, t.me * nbytes), src.on(t.me), nbytes)
    for k in range(t.size - 1):
        mine, theirs = (t.me - k) % t.size * nbytes, (before - k) % t.size * nbytes
        if not t.on_my_node(before):
            arrived = t.recv(before, dst.on(t.me, theirs), nbytes)
        if t.on_my_node(behind):
            t.copy(dst.on(behind, mine), dst.on(t.me, mine), nbytes)
            t.signal_thread(passed, behind, k + 1)
        else:
            t.send(behind, dst.on(t.me, mine), nbytes)
        if t.on_my_node(before):
            t.wait_for_thread(passed, before, k + 1)
        else:
            t.need(arrived)
    t.done("all", "all")


def main() -> int:
    """Gather by the variant, and compare the result; return 1 if a value is wrong."""
    with xupc.init() as team:
        threads, me, n = xupc.THREADS, xupc.MYTHREAD, 1000
        mine = xupc.all_alloc(n * threads, np.float64, blocksize=n)
        all_ = xupc.all_alloc(n * threads * threads, np.float64, blocksize=n * threads)
        mine.local[:] = me + np.arange(n) / n
        plan = xupc.all_gather_all.plan(all_, mine, 8 * n, algorithm="multicore:thread_ring")
        plan()
        expected = np.add.outer(np.arange(threads), np.arange(n) / n).reshape(-1)
        wrong = int((all_.local != expected).sum())
        if me == 0:
            print(f"{plan.algorithm} on {team.tree.node_count} nodes: {wrong} wrong values")
        return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
