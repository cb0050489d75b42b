"""Hooks around calls: which calls they get, errors, posted calls, their end; for test_trace."""

from __future__ import annotations

import numpy as np

import xupc

seen: list[tuple[object, ...]] = []


def before(call) -> None:
    seen.append(("before", call.name, call.nbytes))


def after(call, error) -> None:
    assert call.seconds >= 0
    seen.append(("after", call.name, type(error).__name__, call.algorithm.partition(":")[0]))


with xupc.init() as team:
    total, mine = np.empty(10), np.ones(10)
    xupc.allav_reduce_all(total, mine, xupc.ADD)
    hook = xupc.hooks.add(before, after)
    for _ in range(2):  # the first and a repeated call
        xupc.allav_reduce_all(total, mine, xupc.ADD, flags=xupc.MULTICORE)
        name = "allav_reduce_all"
        assert seen == [("before", name, 80), ("after", name, "NoneType", "multicore")], seen
        seen.clear()
    handle = xupc.allav_reduce_all(total, mine, xupc.ADD, flags=xupc.ASYNC)
    handle.wait()
    assert [each[:2] for each in seen] == [("before", name), ("after", name)], seen
    seen.clear()
    team.barrier()
    assert [each[1] for each in seen] == ["barrier", "barrier"], seen
    seen.clear()
    try:
        team.barrier(xupc.MYTHREAD)
    except xupc.CollectiveMismatchError:
        pass
    else:
        assert xupc.THREADS == 1
    assert seen[-1][2] == "CollectiveMismatchError", seen
    hook.remove()
    seen.clear()
    team.barrier()
    assert not seen

    def bad(call) -> None:
        raise KeyError("mine")

    with xupc.hooks.add(bad):
        try:
            team.barrier()
        except KeyError as error:
            assert error.args == ("mine",)
        else:
            raise AssertionError("expected the hook's error")
    team.barrier()
    order: list[int] = []
    outer = xupc.hooks.add(lambda _: order.append(1), lambda *_: order.append(4))
    with outer, xupc.hooks.add(lambda _: order.append(2), lambda *_: order.append(3)):
        team.barrier()
    assert order == [1, 2, 3, 4]
    try:
        xupc.hooks.add(3)
    except TypeError as error:
        assert "hooks.add: before: expected a callable or None, got int" in str(error)
    print("good")
