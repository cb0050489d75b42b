"""The recorder: an algorithm runs once against it and leaves a plan.

An algorithm is a function ``f(t, ...)`` that runs on every thread with the same arguments; `t` is a
`Recorder`. The algorithm

- moves data with `copy`, `fetch`, `send`, `recv`;
- declares whose data may be touched with `ready` and `done`. These become signals under MYSYNC
  only: under ALLSYNC the recorder puts barriers around the call, under NOSYNC nothing;
- orders accesses to its own scratch with `signal`, `wait` and tickets, under every mode.

All threads must make the same sequence of calls that take a channel: `channel` itself, `ready`,
`done`, `after`, `node_barrier`, `single_mover` and the forms of these. So all agree on the
channels' numbers without communication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..records import record
from .lanes import LaneRecorder
from .plan import Plan
from .steps import (
    Barrier,
    BlockRef,
    Copy,
    Fold,
    FusedBarrier,
    NetSignal,
    NetWait,
    Ranks,
    Scan,
    Swap,
)

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = ["ALL", "DST", "NODE", "SRC", "Operand", "Recorder", "Who", "trace"]

ALL: Final = "all"
"""All threads of the team."""
NODE: Final = "node"
"""The threads of my node."""
Who = int | str


@record
class Operand:
    """Name a piece of memory of each thread, shared or private."""

    index: int

    def on(self, thread: int, offset: int = 0) -> BlockRef:
        """Return the operand's memory on one thread."""
        return BlockRef(self.index, thread, offset)

    def across(self, ranks: Ranks, offset: int = 0, step: int = 0) -> BlockRef:
        """Return a row: a block on each of `ranks`, each `step` bytes behind the one before."""
        return BlockRef(self.index, ranks.first, offset, ranks.step, step)

    def row(self, thread: int, offset: int, step: int) -> BlockRef:
        """Return a row of blocks `step` bytes apart on one thread."""
        return BlockRef(self.index, thread, offset, 0, step)


DST: Final = Operand(0)
SRC: Final = Operand(1)
"""A call's own operands, where there are just these two."""


class Recorder(LaneRecorder):
    """Record the steps of one call for thread `me`, with the synchronisation of its flags.

    Attributes
    ----------
    sync
        When data may be touched before and after: each of ``"no"``, ``"my"``, ``"all"``.
    """

    def __init__(
        self, me: int, tree: Tree, sync: tuple[str, str], tuning: Mapping[str, int],
        kernel: Any = None,
    ) -> None:
        super().__init__(me, tree, tuning, kernel)
        self.sync = sync
        self._one_sided = False
        self._led = False
        self._fused = False
        self._meeting: int | None = None
        self._met = 0

    # -- synchronisation of an algorithm's own scratch --------------------------------
    def barrier(self) -> None:
        """Wait until all threads of the team have come here."""
        if self.size > 1:
            self._add(Barrier())

    def node_barrier(self) -> None:
        """Wait until all threads of my node have come here."""
        if self.one_node:
            self.barrier()
            return
        if self._meeting is None:
            self._meeting = self.channel()
        self._met += 1
        self.signal(self._meeting, self.node_ranks(), self._met)
        self.wait(self._meeting, self.node_ranks(), self._met)

    def after(self, owners: Who, users: Who, *, node_only: bool = False) -> None:
        """Let `users` continue when `owners` have come here."""
        self._handshake(owners, users, node_only)

    def after_each(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """Let me continue after `owners`, and `users` after me: `after` by lists of each thread."""
        self._notify_and_wait(users, owners)

    # -- synchronisation of the caller's data ---------------------------------------
    def expose(self) -> None:
        """Make all threads poll: in this call threads of other nodes read memory one-sided."""
        self._one_sided |= not self.one_node

    def ready(self, owners: Who, users: Who, *, node_only: bool = False) -> None:
        """Let `users` touch data of `owners`: under MYSYNC when those have entered.

        `node_only`: the users are on the owners' nodes. Other nodes take part by messages alone.
        """
        if not node_only:
            self.expose()
        if self.sync[0] == "my":
            self._handshake(owners, users, node_only)

    def node_entered(self) -> None:
        """Wait, unless under ALLSYNC, until all threads of my node have entered the call."""
        if self.sync[0] != "all":
            self._handshake(NODE, NODE, node_only=True)

    def peer_entered(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """Let me write to scratch of `owners`, and `users` to mine: of my node, when they entered.

        Unlike data, scratch may be in use until its thread enters, under every mode.
        """
        if self.sync[0] != "all":
            near = (sorted({r for r in who if self.on_my_node(r)}) for who in (users, owners))
            self._notify_and_wait(*near)

    def done(self, users: Who, owners: Who, *, node_only: bool = False) -> None:
        """Let `owners` return when `users` have touched their data: under MYSYNC only."""
        if self.sync[1] == "my":
            self.join()
            self._handshake(users, owners, node_only)

    def ready_each(
        self, owners: Iterable[int], users: Iterable[int], *, node_only: bool = False
    ) -> None:
        """Let me touch data of `owners`, and `users` mine: `ready` by lists of each thread."""
        if not node_only:
            self.expose()
        if self.sync[0] == "my":
            self._notify_and_wait(users, owners)

    def done_each(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """End my use of data of `owners`, and that of mine by `users`: `done` by lists."""
        if self.sync[1] == "my":
            self.join()
            self._notify_and_wait(owners, users)

    def _notify_and_wait(self, to: Iterable[int], of: Iterable[int]) -> None:
        """Notify the threads `to`, and wait for the notices of the threads `of`."""
        channel = self.channel()
        for rank in sorted({*to} - {self.me}):
            self.signal_thread(channel, rank)
        for rank in sorted({*of} - {self.me}):
            self.wait_for_thread(channel, rank)

    def _is(self, who: Who) -> bool:
        return who in (ALL, NODE) or who == self.me

    def _node_ranks_in(self, who: Who) -> tuple[Ranks, ...]:
        if self.tree.node_size(self.my_node) == 1:
            return ()
        if isinstance(who, int):  # me too: my wait for all threads of the node includes me
            return (Ranks(who),) if self.on_my_node(who) else ()
        return self.node_ranks()

    def _handshake(self, signallers: Who, waiters: Who, node_only: bool) -> None:
        if signallers == ALL and waiters == ALL and not node_only:
            self._add(Barrier())  # all wait for all: that is a barrier
            return
        channel = self.channel()
        across = not node_only and not self.one_node and NODE not in (signallers, waiters)
        if self._is(signallers):
            self.signal(channel, self._node_ranks_in(waiters))
            if across and (waiters == ALL or not self._is_near(waiters)):
                self._add(NetSignal(channel, self._ranks(waiters), self._ticket()))
        if self._is(waiters) and signallers != self.me:
            self.wait(channel, self._node_ranks_in(signallers))
            if across and (signallers == ALL or not self._is_near(signallers)):
                ticket = self._ticket()
                self._add(NetWait(channel, self._ranks(signallers), ticket))
                self.need(ticket)

    def _is_near(self, who: Who) -> bool:
        return isinstance(who, int) and self.on_my_node(who)

    def _ranks(self, who: Who) -> Ranks:
        return Ranks(who) if isinstance(who, int) else Ranks(0, self.size)

    # -- one thread, or node roots alone, move all data -------------------------------
    def root_exchange(self, nbytes: int, *, one_block: bool = False, meets: bool = False) -> bool:
        """Return whether node roots move everything while the others only arrive and leave.

        That is so across a few nodes, under ALLSYNC both ways, for at most ``root_exchange_max``
        bytes per node, or ``root_exchange_max_one_block`` if only `one_block` crosses. `meets`:
        under any mode, since the algorithm has a barrier before and after the node roots' steps.
        Waking a thread costs more than copying a small block for it. Between node roots the data
        travels with the barrier, so no message may depend on another one.
        """
        synchronised = meets or self.sync == ("all", "all")
        self._led = synchronised and self.roots_should_move(nbytes, one_block=one_block)
        return self._led

    def lead(self, nbytes: int) -> None:
        """Let node roots move everything, as `root_exchange` does, wherever that can be."""
        if self.sync != ("all", "all") or not self.roots_can_move(nbytes):
            raise ValueError(f"node roots cannot move {nbytes} bytes per node with a barrier here")
        self._led = True

    @contextmanager
    def single_mover(self, by: int, *, anyone: bool = False) -> Iterator[None]:
        """Let one thread of the node move all data: the whole of a one-node algorithm.

        Under ALLSYNC both ways this is one fan-in and one fan-out with the data moved in between.
        `anyone` then lets the last thread to arrive do it.
        """
        assert self.one_node
        # an exception of the user's function must reach all threads before they leave the call
        fused = self.sync == ("all", "all") and self.size > 1 and not self.may_raise
        self.ready(ALL, by)
        mark = len(self._lanes[0])
        yield
        body = self._lanes[0][mark:]
        del self._lanes[0][mark:]
        mine = body if self.me == by or (anyone and fused) else []
        if fused:
            assert all(isinstance(s, Copy | Swap | Fold | Scan) for s in body)
            self._add(FusedBarrier(None if anyone else by, tuple(mine)))  # type: ignore[arg-type]
            self._fused = True
        else:
            self._lanes[0].extend(mine)
        self.done(by, ALL)

    # -- the end ---------------------------------------------------------------------
    def plan(self, collective: str, algorithm: str, *, private: bool = False) -> Plan:
        """Return what was recorded, with the barriers of ALLSYNC around it."""
        node, net = self._lanes
        if self.sync[1] == "all":
            self.join()
        if self._fused:
            assert len(node) == 1
        elif self.size > 1:
            if self.sync[0] == "all":
                node.insert(0, Barrier())
            if self.sync[1] == "all":
                node.append(Barrier())
        return Plan(
            collective,
            algorithm,
            self.me,
            self.size,
            (tuple(node), tuple(net)),
            self._tickets,
            self.sync,
            self._one_sided,
            self._led,
            self.kernel,
            self._scratch,
            private,
        )


Algorithm = Callable[..., None]


def trace(
    algorithm: Algorithm,
    name: str,
    collective: str,
    me: int,
    tree: Tree,
    sync: tuple[str, str],
    tuning: Mapping[str, int],
    arguments: Sequence[object],
    kernel: Any = None,
    *,
    private: bool = False,
) -> Plan:
    """Run `algorithm` for thread `me` and return the plan that it leaves.

    `private`: operands 0 and 1 are each thread's own.
    """
    recorder = Recorder(me, tree, sync, tuning, kernel)
    algorithm(recorder, *arguments)
    return recorder.plan(collective, name, private=private)
