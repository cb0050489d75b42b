"""The variants by levels below a node: every root, all synchronisation modes, in place.

Prints the number of domains of each level below the node.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

import xupc

SIZES = (1, 72, 40_000, 300_000)
IN = (xupc.IN_NOSYNC, xupc.IN_MYSYNC, xupc.IN_ALLSYNC)
OUT = (xupc.OUT_NOSYNC, xupc.OUT_MYSYNC, xupc.OUT_ALLSYNC)


def block(thread: int, nbytes: int, salt: int) -> Any:
    return (np.arange(nbytes) * 7 + 31 * thread + salt).astype(np.uint8)


def run(call: Any, flags: int, *arguments: Any) -> None:
    """Call it between barriers, so that every mode may be used."""
    xupc.barrier()
    call(*arguments, flags, algorithm="multicore:levels")
    xupc.barrier()


def broadcasts(dst: Any, src: Any, nbytes: int, flags: int, salt: int) -> None:
    root = salt % xupc.THREADS
    src.local[:nbytes] = block(xupc.MYTHREAD, nbytes, salt)
    dst.local[:] = 255
    run(xupc.all_broadcast, flags, dst, src + root * src.blocksize, nbytes)
    assert (dst.local[:nbytes] == block(root, nbytes, salt)).all()
    assert (dst.local[nbytes:] == 255).all()
    dst.local[:nbytes] = block(xupc.MYTHREAD, nbytes, salt + 1)
    run(xupc.all_broadcast, flags | xupc.IN_PLACE, dst, dst + root * dst.blocksize, nbytes)
    assert (dst.local[:nbytes] == block(root, nbytes, salt + 1)).all()


def gathers(dst: Any, src: Any, nbytes: int, flags: int, salt: int) -> None:
    me, size = xupc.MYTHREAD, nbytes * xupc.THREADS
    src.local[:nbytes] = block(me, nbytes, salt)
    dst.local[:] = 255
    threads = range(xupc.THREADS)
    every = [np.concatenate([block(i, nbytes, salt + k) for i in threads]) for k in (0, 1)]
    run(xupc.all_gather_all, flags, dst, src, nbytes)
    assert (dst.local[:size] == every[0]).all()
    assert (dst.local[size:] == 255).all()
    dst.local[:] = 255
    dst.local[me * nbytes : (me + 1) * nbytes] = block(me, nbytes, salt + 1)
    run(xupc.all_gather_all, flags | xupc.IN_PLACE, dst, None, nbytes)
    assert (dst.local[:size] == every[1]).all()


def lists(dst: Any, src: Any, nbytes: int, flags: int, salt: int) -> None:
    """Blocks of another length from each thread, some empty, with gaps between them."""
    threads, me, most = range(xupc.THREADS), xupc.MYTHREAD, dst.blocksize
    counts = [nbytes * ((i + salt) % 3) // 2 for i in threads]
    at = [sum(counts[:i]) + 3 * i for i in threads]
    src.local[:nbytes] = block(me, nbytes, salt)
    dst.local[:] = want = np.full(most, 255, np.uint8)
    to = [i * most + at[j] for i in threads for j in threads]
    run(xupc.all_gather_all_v, flags, dst, src, to, [j * most for j in threads], counts)
    for i in threads:
        want[at[i] : at[i] + counts[i]] = block(i, nbytes, salt)[: counts[i]]
    assert (dst.local == want).all()
    root, to = salt % xupc.THREADS, [i * most + 5 * i for i in threads]
    run(xupc.all_broadcast_v, flags, dst, src + root * most, to, nbytes)
    want[5 * me : 5 * me + nbytes] = block(root, nbytes, salt)
    assert (dst.local == want).all()


def reductions(dst: Any, src: Any, nelems: int, flags: int, salt: int) -> None:
    """Reduce shared arrays of doubles, to one value and element by element."""
    me, threads, root = xupc.MYTHREAD, xupc.THREADS, salt % xupc.THREADS
    rows = np.stack(
        [np.arange(nelems * threads) % 97 + 31.0 * i + salt for i in range(threads)]
    )
    src.local[: nelems * threads] = rows[me]
    total = rows.sum(axis=0)
    blocks = total[:nelems]
    each = nelems * threads
    dst.local[:] = -1
    to = dst + root * dst.blocksize
    if salt % 2:
        flags |= xupc.REPRODUCIBLE
    same = src.ptr(0).cast(blocksize=nelems)
    run(xupc.all_reduce_mpi_all, flags, dst, same, xupc.ADD, each, nelems, None)
    assert (dst.local[:nelems] == blocks).all()
    run(xupc.all_reduce_mpi, flags, to, same, xupc.ADD, each, nelems, None)
    assert (dst.local[:nelems] == blocks).all()
    run(xupc.all_reduce, flags, to, same, xupc.ADD, each, nelems, None)
    assert me != root or dst.local[0] == blocks.sum()
    run(xupc.all_reduce_all, flags, dst, same, xupc.ADD, each, nelems, None)
    assert dst.local[0] == blocks.sum()
    run(xupc.all_reduce_scatter, flags, dst, src, xupc.ADD, nelems, None)
    assert (dst.local[:nelems] == total[me * nelems : (me + 1) * nelems]).all()
    assert (dst.local[nelems:] == -1).all()


def scans(dst: Any, src: Any, nelems: int, flags: int, salt: int) -> None:
    """Scan three rows of blocks, the last of which is not full."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    block, count = nelems, nelems * threads * 3 - nelems // 2
    part = (np.arange(src.local.size) * 7 + 31 * me + salt) % 97
    src.local[:] = part
    place = [
        (q // block % threads, q // block // threads * block + q % block) for q in range(count)
    ]
    values = np.array([(k * 7 + 31 * i + salt) % 97 for i, k in place], float)
    before = np.concatenate([[0.0], np.cumsum(values)])
    behind = np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]])
    mine = [q for q, (i, _) in enumerate(place) if i == me]
    at = [place[q][1] for q in mine]
    from_, to = (x.ptr(0).cast(blocksize=block) for x in (src, dst))
    for call, whole in ((xupc.all_prefix_reduce, before), (xupc.all_suffix_reduce, behind)):
        for exclusive in (False, True):
            dst.local[:] = -1
            more = xupc.EXCLUSIVE if exclusive else 0
            run(call, flags | more, to, from_, xupc.ADD, count, block, None)
            skip = exclusive == (call is xupc.all_suffix_reduce)
            found = whole[1:] if skip else whole[:-1]
            assert (dst.local[at] == found[mine]).all()
            assert (np.delete(dst.local, at) == -1).all()


def in_another_order(team: Any) -> None:
    """Gather in a team whose ranks are not in the order of its threads, and lack one."""
    threads, me = [*range(1, xupc.THREADS, 2), *range(xupc.THREADS - 2, -1, -2)][:-1], xupc.MYTHREAD
    part = team.split(0 if me in threads else None, threads.index(me) if me in threads else 0)
    if part is None:
        return
    size = 1000
    most = size * part.size
    dst, src = (xupc.all_alloc(most * part.size, "u1", most, team=part) for _ in range(2))
    src.local[:size] = block(me, size, 0)
    for call, expected in ((xupc.all_gather_all, threads), (xupc.all_broadcast, threads[:1])):
        dst.local[:] = 255
        part.barrier()
        call(dst, src, size, algorithm="multicore:levels", team=part)
        want = np.concatenate([block(thread, size, 0) for thread in expected])
        assert (dst.local[: want.size] == want).all()
        part.barrier()


with xupc.init() as team:
    most = max(SIZES) * xupc.THREADS + 64
    dst, src = (xupc.all_alloc(most * xupc.THREADS, "u1", most) for _ in range(2))
    for salt, (nbytes, (into, out)) in enumerate(product(SIZES, product(IN, OUT))):
        broadcasts(dst, src, nbytes, into | out, salt)
        gathers(dst, src, nbytes, into | out, salt)
        lists(dst, src, nbytes, into | out, salt)
    in_another_order(team)
    sizes = (1, 13, 20_000)
    most = max(sizes) * xupc.THREADS
    dst, src = (xupc.all_alloc(most * xupc.THREADS, "f8", most) for _ in range(2))
    for salt, (nelems, mode) in enumerate(product(sizes, range(3))):
        reductions(dst, src, nelems, IN[mode] | OUT[mode], salt)
    dst, src = (xupc.all_alloc(900 * xupc.THREADS, "f8", 900) for _ in range(2))
    for salt, (nelems, mode) in enumerate(product((1, 2, 300), range(3))):
        scans(dst, src, nelems, IN[mode] | OUT[mode], salt)
    if not xupc.MYTHREAD:
        print(*(len(level.domains) for level in team.state.tree.levels(0).levels[1:]))
