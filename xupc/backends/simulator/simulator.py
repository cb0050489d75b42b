"""Run the plans of all threads in one process over plain memory: any placement, no MPI.

Each lane of each thread is an actor that runs its steps in order; messages in flight are actors
too. Besides moving the bytes, the simulator decides three questions that a run on a real machine
answers only by accident:

* **races**: two accesses to the same bytes, one of them a write, that nothing orders
  (`race_detector`), including the user's own accesses between the calls;
* **deadlock**: no actor can continue;
* **misuse of the protocol**: messages that do not fit, a wait for a thread that
  signals only to others, threads in different calls at a barrier.

Waits are deterministic, so none of the three answers depends on the schedule. Where a
backend has a choice, the simulator assumes the worst case:

1. A Send reads its source from posting to its ticket. Its ticket is set only after the
   message is received, but the sender learns nothing about the receiver from it. A Recv
   writes from posting to its ticket; from it the receiver learns all that the sender knew
   when it posted.
2. A Get reads and writes from posting to its ticket; its target learns nothing.
3. A Wait for v needs the first signal of v or more, and the v-th signal that names the
   waiter, because backends without shared memory count messages. It learns only what the
   writer knew at the earlier of the two.
4. Messages match in order per sender, receiver, team, operation and channel.

Calls can be on teams, and posted. Posted calls of one team run in order, at a time of their
own. Between posting and waiting, nothing orders the accesses of the thread's own program
and those of the call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...topology.tree import Tree
from .barriers import enter_barrier, enter_user_barrier
from .call_lifetime import complete_if_done, enter_call, set_ticket, wait_ticket
from .data_movement import access, direct_step, local_step
from .deadlock import blocked
from .errors import (
    DeadlockError,
    ProtocolError,
    RaceError,
    WrongBytesError,
)
from .messages import check_signals, deliver, get, read, recv, send, signal, wait
from .race_detector import Head, Shadow, Where
from .script import (
    Action,
    Memory,
    UserBarrier,
    UserRead,
    UserWrite,
)
from .sim_program import (
    ACROSS,
    BARRIER,
    COPY,
    FUSED,
    GET,
    NEED,
    POST,
    RECV,
    SEND,
    SIGNAL,
    WAIT,
    WORK,
)
from .state import Actor, Lane, Reading, Transfer, UserThread, World
from .symbols import Symbols

__all__ = ["Simulation"]

_STEPS: Final[dict[int, Callable[[World, Lane, Any], bool]]] = {
    COPY: local_step,
    WORK: local_step,
    ACROSS: direct_step,
    SIGNAL: signal,
    WAIT: wait,
    SEND: send,
    RECV: recv,
    GET: get,
    NEED: wait_ticket,
    POST: set_ticket,
    BARRIER: enter_barrier,
    FUSED: enter_barrier,
}
"""The function that runs each kind of step on a lane; it returns True if the lane continues."""


class Simulation:
    """Scripts of calls and user accesses, one per thread, run to their end.

    Parameters
    ----------
    tree
        The node of each thread.
    memory
        ``memory[array][thread]`` are the bytes of an array on a thread.
    scripts
        ``scripts[thread]``: its actions in order. The calls on a team must be the same on all
        its threads. The only barriers between them are those of the calls and `UserBarrier`.
    seed
        None: round robin, each actor runs until it blocks. A number: a random actor
        runs one step, again and again.
    """

    def __init__(
        self,
        tree: Tree,
        memory: Memory,
        scripts: Sequence[Sequence[Action]],
        seed: int | None = None,
    ) -> None:
        if len(scripts) != tree.size:
            raise ValueError(f"{tree.size} threads, {len(scripts)} scripts")
        self._random = None if seed is None else random.Random(seed)
        self._queue: deque[Actor] = deque()
        self._pool: list[Actor] = []
        push = self._queue.append if seed is None else self._pool.append
        self._world = World(memory, scripts, push)

    def run(self, *, at_once: bool = False) -> None:
        """Run all scripts; raise ProtocolError, RaceError, DeadlockError or WrongBytesError.

        `at_once`: raise the first race or misuse of the protocol when it is found, without others.
        """
        try:
            self._run_actors(at_once)
            self._raise_findings(at_once)
        finally:
            # cut the reference cycles, so that memory is freed at once: plans are large
            for thread in self._world.threads:
                for stream in thread.streams.values():
                    stream.lanes = ()
                thread.streams.clear()

    def _run_actors(self, at_once: bool) -> None:
        for thread in self._world.threads:
            self._world.push(thread)
        if self._random is None:
            queue = self._queue
            while queue and not (at_once and self._has_findings()):
                actor = queue.popleft()
                _TURNS[type(actor)](self, actor)
        else:
            pool, chance = self._pool, self._random.random
            while pool and not (at_once and self._has_findings()):
                i = int(chance() * len(pool))
                pool[i], pool[-1] = pool[-1], pool[i]
                actor = pool.pop()
                _TURNS[type(actor)](self, actor)

    def _has_findings(self) -> bool:
        return bool(self._world.races or self._world.protocol)

    def _raise_findings(self, at_once: bool) -> None:
        world = self._world
        stuck = [] if at_once and self._has_findings() else blocked(world)
        if world.protocol:
            raise ProtocolError(*world.protocol)
        if world.races:
            raise RaceError(*world.races.values())
        if stuck:
            raise DeadlockError(f"deadlock: {len(stuck)} blocked", *stuck)
        if world.wrong:
            raise WrongBytesError(*world.wrong)
        check_signals(world)
        if world.protocol:
            raise ProtocolError(*world.protocol)

    # -- turns of the actors -----------------------------------------------------------
    def _advance(self, lane: Lane) -> None:
        """Run the steps of a lane until one blocks (or, at random, one step)."""
        world, steps, end = self._world, lane.steps, lane.end
        while lane.at < end:
            kind, what = steps[lane.at]
            if not _STEPS[kind](world, lane, what):
                return
            lane.at += 1
            if self._random is not None:
                world.push(lane)
                return
        lane.owner.running -= 1
        complete_if_done(world, lane.owner)

    def _user(self, thread: UserThread) -> None:
        """Run the next actions of a script; calls start here."""
        world, script = self._world, thread.script
        head = thread.number, thread.calls, -1, script, ""
        while thread.next < len(script):
            action = script[thread.next]
            at = thread.next
            thread.next += 1
            if isinstance(action, UserWrite | UserRead):
                self._user_access(thread, action, head, at)
            elif isinstance(action, UserBarrier):
                enter_user_barrier(world, thread)
                return
            else:
                if not enter_call(world, thread, action):
                    return
                head = thread.number, thread.calls, -1, script, ""
                continue
            if self._random is not None:
                world.push(thread)
                return

    def _user_access(
        self, thread: UserThread, action: UserWrite | UserRead, head: Head, at: int
    ) -> None:
        """Read or write memory as the user's program does between the calls."""
        array, number, lo, data = action
        shadow = self._world.shadows[array][number]
        hi, writes = lo + len(data), isinstance(action, UserWrite)
        access(self._world, thread, shadow, (lo, hi), writes, (head, at))
        if writes:
            shadow.memory[lo:hi] = data
        elif shadow.memory[lo:hi] != data:
            self._find_wrong(shadow, lo, data, Where.of((head, at)))

    def _find_wrong(self, shadow: Shadow, lo: int, data: bytes | Symbols, where: Where) -> None:
        """Report the bytes of memory that differ from the expected ones, and who wrote the first.

        With symbols the report names the bytes' origin.
        """
        found = shadow.memory[lo : lo + len(data)]
        if isinstance(found, Symbols) and isinstance(data, Symbols):
            count, first, text = found.difference(data)
        else:
            assert isinstance(data, bytes)
            odd = [i for i, x in enumerate(data) if found[i : i + 1] != bytes([x])]
            count, first = len(odd), odd[0]
            text = f"expected {data[first]:#04x}, found 0x{found[first : first + 1].hex() or '?'}"
        writer = shadow.written_by(lo + first)
        by = "no step wrote it" if writer is None else f"written by {Where.of(writer)}"
        self._world.wrong.append(
            f"{where}: {count} of {len(data)} bytes are wrong, the first at {lo + first}: {text}; "
            f"{by}"
        )

    def _deliver(self, transfer: Transfer) -> None:
        deliver(self._world, transfer)

    def _read(self, reading: Reading) -> None:
        read(self._world, reading)


_TURNS: Final[dict[type[Any], Callable[[Simulation, Any], None]]] = {
    Lane: Simulation._advance,
    UserThread: Simulation._user,
    Transfer: Simulation._deliver,
    Reading: Simulation._read,
}
"""The method that runs each kind of actor."""
