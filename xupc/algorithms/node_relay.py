"""A relay: threads of a node stage units, their node root exchanges them with other node roots.

Collectives of arrays of values use it across nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..plan.placement import Facts
from ..plan.recorder import Recorder, Who
from ..plan.steps import OP_SCRATCH, STAGING, Ranks
from .private_staging import LINE, Places

__all__ = ["SMALL_PIECE", "Relay"]

SMALL_PIECE = 4096
"""Bytes. Smaller pieces of a block for all nodes are not cut: they go to some nodes at a time."""


class Relay:
    """Pass units from all threads of a node to their node root, and what it received back to them.

    ::

        thread       in(0)  in(1)             out(0)  in(2)            out(1)  in(3)
        node root        [0 ------------------|
                               [1 ----------------------------------|

    Threads stage a unit while the one before is on the network. A place for staged blocks is used
    again four units later, one for arriving blocks `deep` units later. The staging buffer is
    divided in proportion, but a staged unit has at least the size of a small piece. A single unit
    that all threads wait for is led: it travels with a barrier of node roots.

    Parameters
    ----------
    out, landing
        Bytes that a thread stages in a unit, and that arrive at a node root. If they are too
        many, the caller cuts its units to the sizes of `out` and `landing` of this object.
        If the staged bytes fit an op_scratch, there is one unit.
    crossing
        Bytes that a node sends and receives in all, for `Recorder.root_exchange`; None: not led.
    deep
        Units that a node root has in transit: 2, or 3 if it sends each twice (see `run`).
    """

    def __init__(
        self, t: Recorder, out: int, landing: int, crossing: int | None = None, deep: int = 2
    ) -> None:
        self.t = t
        self.crossing = crossing
        self.passed_down = False  # whether threads read landing places of others than the node root
        self.out, self.landing = self.places(t, out, landing, deep)
        self._deep = deep

    @staticmethod
    def places(t: Facts, out: int, landing: int, deep: int = 2) -> tuple[Places, Places]:
        """Return the places of a relay for staged and for arriving blocks."""
        out, landing = -(-out // LINE) * LINE, -(-landing // LINE) * LINE
        slot, buffer = t.tuning["eager_max"], t.tuning["staging_bytes"]
        depth = 4
        least = min(out, SMALL_PIECE, buffer // (2 * depth) // LINE * LINE)
        whole = max(LINE, depth * out + deep * landing)
        staged = max(least, out * buffer // whole // LINE * LINE)
        arriving = min(landing, (buffer - depth * staged) // deep // LINE * LINE)
        if out > slot or landing > arriving:
            return Places(STAGING, staged, depth), Places(STAGING, arriving, deep, depth * staged)
        if out + landing <= slot:
            return Places(OP_SCRATCH, out), Places(OP_SCRATCH, landing, 1, out)
        return Places(OP_SCRATCH, out), Places(STAGING, arriving, deep, depth * staged)

    @staticmethod
    def fits(t: Facts, landing: int, deep: int = 2) -> bool:
        """Return whether so many bytes may arrive in a unit, for any number of staged bytes."""
        return landing <= t.tuning["staging_bytes"] // (2 * deep)

    def run(
        self,
        units: int,
        stage: Callable[[int], None],
        post: Callable[[int], list[int]],
        take: Callable[[int], None],
        finish: Callable[[int], list[int]] = lambda u: [],
        *,
        only: Who | None = None,
    ) -> None:
        """Record all units.

        The node root alone calls `post`, which returns the tickets of its messages, and `finish`
        when these are complete. `finish` may post messages again. The messages of the next unit, or
        of the next two if the relay is 3 `deep`, are posted in between.

        `only`: the thread, on any node, that takes units, or ALL; they take them from the node root
        only. Without it all threads take units, from each other too. A thread that takes none may
        be ahead of the node root.
        """
        t = self.t
        assert units == 1 or not self.out.short
        if units == 1 and not isinstance(only, int) and self._led():
            self._run_led(stage, post, take, finish)
            self._leave(only, t.node_ranks())
            return
        given, landed = t.channel(), t.channel()
        woken, others = self._takers(only)
        taker, sent = any(t.me in run for run in woken), t.channel() if others else -1
        ahead = units if self.out.short else self.out.depth  # units that the others may be ahead
        lag = self._deep - 1  # units between one that is posted and one that is taken meanwhile
        posted, finished = dict[int, list[int]](), dict[int, list[int]]()
        for u in range(units + lag):
            t.turn(u)
            if u < units:
                if u >= ahead and not taker:
                    t.wait(sent, t.node_root, u - ahead + 1)
                stage(u)
                t.signal(given, (Ranks(t.node_root),), u + 1)
            if t.me == t.node_root:
                with t.net():
                    t.turn(u)
                    if u < units:
                        t.wait(given, t.node_ranks(), u + 1)
                        posted[u] = post(u)
                    if 0 < u <= units:
                        t.need(*posted.pop(u - 1))
                        finished[u - 1] = finish(u - 1)
                        if u <= units - ahead:
                            t.signal(sent, others, u)
                    if u >= lag:
                        t.need(*finished.pop(u - lag))
                        t.signal(landed, woken, u - lag + 1)
            if u >= lag and taker:
                t.wait(landed, t.node_root, u - lag + 1)
                take(u - lag)
        t.turn(units + lag)
        self._leave(only, woken)
        if others and not self.out.short:
            self._let_go(sent, others, max(0, units - ahead) + 1, taker=taker)

    def _takers(self, only: Who | None) -> tuple[list[Ranks], list[Ranks]]:
        """Return the threads of my node that take units, and those that do not."""
        t = self.t
        if isinstance(only, int):
            return [Ranks(only)] if t.on_my_node(only) else [], t.node_ranks_but(only)
        return list(t.node_ranks()), []

    def _run_led(
        self,
        stage: Callable[[int], None],
        post: Callable[[int], list[int]],
        take: Callable[[int], None],
        finish: Callable[[int], list[int]],
    ) -> None:
        """Record the only unit between two barriers."""
        t = self.t
        stage(0)
        t.barrier()
        if t.me == t.node_root:
            t.need(*post(0))
            t.need(*finish(0))
        t.barrier()
        take(0)

    def _let_go(self, sent: int, others: Sequence[Ranks], value: int, *, taker: bool) -> None:
        """Record that threads which take no unit return after the messages of the node root."""
        t = self.t
        if t.me == t.node_root:
            with t.net():
                t.signal(sent, others, value)
        elif not taker:
            t.wait(sent, t.node_root, value)

    def _led(self) -> bool:
        return self.crossing is not None and self.t.root_exchange(self.crossing, meets=True)

    def _leave(self, only: Who | None, woken: Sequence[Ranks]) -> None:
        """Wait until no thread of `woken` reads a staging buffer of mine."""
        t = self.t
        if self.landing.short:
            return
        if only is None and (self.passed_down or not self.out.short):
            t.node_barrier()
            return
        taken = t.channel()
        if t.me == t.node_root:
            t.wait(taken, [part for run in woken for part in run.without(t.me)])
        elif any(t.me in run for run in woken):
            t.signal(taken, (Ranks(t.node_root),))
