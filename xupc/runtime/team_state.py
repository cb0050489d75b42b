"""A team of the runtime: its resources, parts, instances and posted calls.

A team owns what its calls share: the fingerprint of the calls so far and their number (in the
core), the plans, and the communicator of messages. `xupc.api.team.Team` is the program's view. A
*part* is a predefined team: `node`, `roots`, or that of a level (`xupc.topology.parts`).
"""

from __future__ import annotations

import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..backends.interpreter import interpreter as python_engine
from ..backends.native.native_core import core, invalidate
from ..backends.operand_binding import BoundOperand, ScratchOperand
from ..backends.protocol import Instance, MessageEngine, TeamCore
from ..backends.wait import HOT_NS, Waitable, WaitState
from ..comm.plan_messages import NetContext
from ..comm.remote_completion import TeamCompletions
from ..comm.tags import AGAIN, BARRIER, KINDS, LOW_BITS, TURNS
from ..errors import CollectiveMismatchError, XupcError, show
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..health.mismatch_recovery import MismatchDetector
from ..pgas.integer_arguments import as_int64
from ..plan.plan import Plan
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS, STAGING_BYTES
from ..topology.parts import ranks_of_part
from ..topology.tree import ThreadTree, Tree
from ..tuning.selection import Table
from .async_queue import AsyncCall
from .dropped_teams import Hold, Returns
from .executor import RunningCall
from .job import Job, OpenTeam
from .team_meetings import TeamMeetings
from .team_records import RUN_AHEAD
from .team_resources import TEAMS, TeamResources

__all__ = [
    "TeamState",
]


_Team = TypeVar("_Team", bound=OpenTeam)


class TeamState(TeamMeetings):
    """A team of the runtime, until all its threads give it back.

    It has only a weak reference to the program's `Team`. So the runtime notices when the program
    drops its `Team`, and gives the team back (`xupc.runtime.dropped_teams`).

    Attributes
    ----------
    tree : Tree or ThreadTree
        The nodes of its threads.
    parent : TeamState or None
        Of a part the team that it is made from; of other teams the world; None of the world itself.
    handle
        Weak reference to the program's `Team`.
    """

    job: Job

    def __init__(
        self, job: Job, table: Table, threads: Sequence[int], parent: TeamState | None = None
    ) -> None:
        super().__init__(job, table, threads, world=parent is None)
        self.parent = parent
        self.handle: Callable[[], Any] = _nothing
        self._hold: Callable[[], Hold | None] = _nothing
        self.notified: tuple[AsyncCall, object] | None = None
        self.queue: deque[AsyncCall] = deque()
        self.differences = MismatchDetector(self)
        self._buffer_taken = False
        self.freed = False
        self._resources: TeamResources | None = None
        self._parts: dict[str, TeamState | None] = {}

    @classmethod
    def world(cls, job: Job, table: Table) -> TeamState:
        """Make the team of all threads."""
        team = cls(job, table, range(job.info.threads))
        job.tuning = team.tuning
        team._use(TeamResources.of_world(job))
        job.world = team
        return team

    # -- resources ------------------------------------------------------------------------
    def _use(self, resources: TeamResources) -> None:
        self._resources = resources
        self.number = resources.number
        self.link = resources.link
        self.agreement = resources.agreement
        self.heap = resources.heap
        if self.parent is not None:
            self.heap.dealt_over = weakref.WeakMethod(self.public)
        if self.job.recorder is not None:
            self.job.recorder.describe(self)
        self.core = self._make_core(resources)
        self.core.blocked = self.job.blocks(self)
        self.exchange_rounds = self._exchange_rounds()
        self.wire = self.link.wire = self._make_wire()
        if self.spans_nodes:
            self._completions = TeamCompletions(
                self.core, self.heap, resources.left_word, self.threads
            )
            self.job.completions.add(self._completions)

    def _open(self, *, here: bool = False) -> None:
        """Make the resources of the team; collective. A part does so at its first use."""
        with self.job.whole("the opening of a team", self.root):
            self._use(TeamResources.open(self.job, self.threads, self.rank_tree, here=here))
        if self.job.next_team == TEAMS:  # numbers, and offsets that follow from them, are reused
            for team in (self.root, *self.job.teams):
                team.forget_plans()
        insort(self.job.teams, self, key=lambda team: team.number)

    def _make_core(self, resources: TeamResources) -> TeamCore:
        job = self.job
        if not self.native:
            team = python_engine.Team(job.control, resources.number)
            team.recorder = job.recorder
            return team
        n = self.rank_tree.node_size(self.node_number)
        relatives = self._barrier_relatives()
        made: TeamCore = core.Team(
            resources.sync_address,
            n,
            self.rank_tree.local_index(self.rank),
            job.control.status_address,
            self.size == 1,
            self.spans_nodes,
            job.info.oversubscribed or n > 16,
            *self._waiting(),
            self._past_the_cache(),
            self._left_word(resources),
            resources.number,
            (job.control, resources.sync, job.info.pids, relatives),
            job.control.ring_address,
            0 if job.info.pids is None else job.info.pids.ctypes.data,
            0 if relatives is None else relatives.ctypes.data,
            0 if relatives is None else relatives.size - 1,
        )
        return made

    def _make_wire(self) -> MessageEngine | None:
        """Return the message engine of the core; None if Python sends messages."""
        network = self.job.network
        if not self.native or not self.spans_nodes:
            return None
        rounds, room = self.exchange_rounds
        made: MessageEngine = core.MessageEngine(
            network.functions,
            network.handle_of(self.link.comm),
            (LOW_BITS, network.tag_bits, TURNS, KINDS, BARRIER, AGAIN),
            rounds if self.exchanges else [],
            room,
            network.mpi.Exception,
            HOT_NS,
        )
        return made

    def _left_word(self, resources: TeamResources) -> int:
        """Return the address where this thread notes the last root exchange that it has left."""
        address, stride = resources.heap.bind(resources.left_word)
        return address + stride * self.rank_tree.place(self.rank)

    # -- the program's team ----------------------------------------------------------------
    @property
    def hold(self) -> Hold | None:
        """Object that keeps the team alive; None if the program has dropped it."""
        owner = self
        while owner.is_part:
            assert owner.parent is not None
            owner = owner.parent
        return owner._hold()

    make_handle: Callable[[TeamState, Hold], Any]
    """The class `Team`."""

    def held_by(self, hold: Hold) -> None:
        """Note when `hold` is deleted: the program then has no reference to the team."""
        self._hold = weakref.ref(hold, lambda _: self.job.dropped.note(self))

    def public(self) -> Any:
        """Return the program's `Team`, a new one if needed; None if the program dropped it."""
        handle, hold = self.handle(), self.hold
        return self.make_handle(self, hold) if handle is None and hold is not None else handle

    @property
    def root(self) -> TeamState:
        """Team of all threads."""
        return self if self.parent is None else self.parent.root

    @property
    def is_part(self) -> bool:
        """True if this team is a part of another one."""
        return self.parent is not None and self in self.parent._parts.values()

    @property
    def idle(self) -> bool:
        """True if no call of the team or its parts is running or has an error to report."""
        return all(
            not team.queue and team.notified is None and team._failure is None
            and not team.core.in_flight
            for team in (self, *self.opened_parts)
        )

    # -- parts ----------------------------------------------------------------------------
    @property
    def tree(self) -> Tree | ThreadTree:
        """Nodes of the team's threads."""
        return self.rank_tree if self.parent is None else ThreadTree(self.rank_tree, self.threads)

    def part(self, name: str) -> TeamState | None:
        """Return the part with a name of `ranks_of_part`; None if this thread is not in it."""
        if name not in self._parts:
            ranks = ranks_of_part(self.rank_tree, self.rank, name)
            threads = tuple(self.threads[rank] for rank in ranks)
            mine = self.job.info.me in threads
            self._parts[name] = TeamState(self.job, self.table, threads, self) if mine else None
        return self._parts[name]

    def split(self, color: int | None, key: int = 0) -> TeamState | None:
        """Implement `Team.split`."""
        self.enter("split")
        self.job.dropped.relieve()
        record = CallRecord("split")
        try:
            mine = (
                int(color is not None),
                0 if color is None else as_int64(color, "split", "color"),
                as_int64(key, "split", "key"),
            )
        except Exception as e:
            self.fail(e, record)
        with self.job.whole("split"):
            self.meet(fingerprint("split"), record)
            returns = Returns(self)
            rows = self.agreement.gather_all([*mine, returns.count])
            returns.carry_out(max(row[3] for row in rows))
            if color is None:
                return None
            alike = sorted(
                (k, rank) for rank, (is_in, c, k, _) in enumerate(rows) if is_in and c == mine[1]
            )
            return self._opened([self.threads[rank] for _, rank in alike])

    def _opened(self, threads: Sequence[int]) -> TeamState:
        team = TeamState(self.job, self.table, tuple(threads), self.root)
        team._open(here=True)
        return team

    def new_team(self, threads: Sequence[int]) -> TeamState:
        """Return a team of these threads of the world, in this order; collective over them alone.

        They also give back the teams that they have dropped together. The caller ensures that each
        of them makes this call now: no timeout covers its begin.
        """
        self.job.check_call("split", self)
        self.job.dropped.relieve()
        with self.job.whole("split", self):
            team = self._opened(threads)
            returns = Returns(team)
            returns.carry_out(team.agreement.agree([returns.count])[0])
            return team

    def free(self) -> None:
        """Implement `Team.free`."""
        if self.parent is None:
            raise ValueError("the world team cannot be freed: call xupc.finalize()")
        if self.is_part:
            raise ValueError("free: a predefined team ends with the one that it is a part of")
        self.enter("free")
        parts = self.opened_parts
        if any(part.notified is not None for part in parts):
            raise XupcError(
                "free: not allowed between notify and wait of the team or of a team made from it: "
                "call their wait() first"
            )
        record = CallRecord("free")
        for part in _by_number(parts):
            part.drain()
        for heap in (self.heap, *(part.heap for part in parts)):
            if using := self.job.uses(memory=heap):
                text = f"free: memory of the team is in use by {using}: wait for its handle"
                self.fail(ValueError(text), record)
        self.end_together(parts, record)
        with self.job.whole("free"):
            returns = Returns(self)
            returns.carry_out(self.agreement.agree([returns.count])[0])
            with self.job.blocking("free"):
                invalidate()
                self.close()

    @property
    def opened_parts(self) -> list[TeamState]:
        """The parts of this team that were used, and the parts of these."""
        used = [part for part in self._parts.values() if part is not None and part._resources]
        return [*used, *(inner for part in used for inner in part.opened_parts)]

    def end_together(self, others: Iterable[OpenTeam], record: CallRecord) -> None:
        """Run the last barriers of this team and of others that end with it.

        No call is posted on them. A difference between their calls is an error on all threads.
        """
        self.meet(fingerprint(record.name), record)  # all threads of the others are in this team
        error: Exception | None = None
        with self.job.whole(record.name):
            for team in _by_number(others):
                try:
                    team.meet(fingerprint(record.name), CallRecord(record.name))
                except Exception as e:  # also errors of a user's function
                    self.job.check()
                    error = error or e
            if error is not None:
                self.fail(error, record)
            self.meet(fingerprint(record.name), record)

    def close(self) -> None:
        """Release the team and its parts; collective, and no call may be running."""
        for part in _by_number(self.opened_parts):
            if not part.freed:
                part.close()
        assert self._resources is not None
        self.freed = True
        self._hold = _nothing
        self.job.teams.remove(self)
        if self.spans_nodes:
            self.job.completions.remove(self._completions)
        self.job.engine.cover(self)
        self.forget_plans()
        self._noted.clear()
        self.core.forget()
        self._resources.close()
        self._parts.clear()  # so that no reference cycle remains
        del self.differences

    # -- messages -------------------------------------------------------------------
    def call_tag(self, instance: Instance, kind: int) -> int:
        """Return the tag of a call's data and signals."""
        return self.link.call_tag(instance.op, kind, instance.fp)

    # -- plans and instances -------------------------------------------------------------
    def make(
        self, plan: Plan, bounds: Sequence[BoundOperand], signature: int, record: CallRecord
    ) -> RunningCall:
        """Return an instance of a plan bound to operands."""
        job = self.job
        if plan.scratch or plan.private:
            bounds = [*bounds, *self._scratch(plan)]
        call = self._call_number(record.title)
        instance: Any  # of the core or the interpreter: made in parts
        if self.native:
            pairs = [b.pair for b in bounds]
            instance = core.Instance(
                self.core, self.program_of(plan, bounds), bounds, pairs, signature, call, record
            )
            if self.wire is not None:
                instance.join(self.wire)
        else:
            assert isinstance(self.core, python_engine.Team)
            program = python_engine.Program(plan)
            instance = python_engine.Instance(
                self.core, program, list(bounds), signature, call, record
            )
        instance.owner = self
        by_hand = plan.kernel is not None and plan.kernel.code is None
        if self.spans_nodes or not self.native or by_hand:
            instance.net = NetContext(job, self, list(bounds))
        made: RunningCall = instance
        return made

    def _scratch(self, plan: Plan) -> list[BoundOperand]:
        """Return the operation scratch and the staging buffer; HeapError if that has no room."""
        heap = self.heap
        start = heap.global_end + SLOTS * OP_SCRATCH_BYTES
        if not self._buffer_taken and plan.uses_buffer:
            heap.take(start, STAGING_BYTES, plan.collective)
            self._buffer_taken = True
        return [ScratchOperand(heap, heap.global_end), BoundOperand(heap, start)]

    # -- calls ---------------------------------------------------------------------------
    def enter(self, call: str, *, posted: bool = False) -> None:
        """Prepare for a call on this team: it must be usable and not between notify and wait.

        A call that is not `posted` first waits for posted calls and, after `RUN_AHEAD` calls
        without a barrier, for the other threads.
        """
        self.job.check_call(call, self)
        if self.freed:
            raise ValueError(f"{call}: team: it was freed")
        if self._resources is None:
            self._open()
        if self.notified is not None:
            raise XupcError(f"{call}: not allowed between notify and wait: call wait() first")
        if posted:
            return
        self.end_posted()
        if self.core.unsynced >= RUN_AHEAD:
            self.catch_up()

    # -- posted calls ----------------------------------------------------------------------
    def post(self, pending: AsyncCall) -> None:
        """Put a call into the queue, and start it if the queue was empty."""
        with self.job.engine.lock:
            self.queue.append(pending)
            self.job.queued(self)
            self.progress()

    def _post_instances(self, calls: Iterable[RunningCall | Waitable], record: CallRecord) -> None:
        self.post(AsyncCall(self, calls, record))

    def _drive(self, instance: RunningCall) -> None:
        instance.begin()
        self.job.engine.drive(instance)

    def progress(self) -> bool:
        """Advance the queue without waiting; return True if a call completed."""
        ended = False
        while self.queue and (first := self.queue[0]).advance():
            self._ended(first)
            ended = True
        return ended

    def end_posted(self) -> None:
        """Wait for all posted calls, those of requests of `xupc.Comm` too."""
        if self.core.in_flight or self.queue:
            self.core.settle()
            self.drain()
            self.job.check()

    def drain(self, last: AsyncCall | None = None) -> None:
        """Wait until the queue is empty, or the call `last` has completed."""
        with self.job.callers.within("a wait for posted calls", self), self.job.engine.lock:
            while self.queue and not (last is not None and last.done):
                self.job.check()
                first = self.queue[0]
                first.finish()
                self._ended(first)

    def _ended(self, first: AsyncCall) -> None:
        """Remove the completed first call from the queue, unless a signal handler has done so."""
        if not self.queue or self.queue[0] is not first:
            return
        self.queue.popleft()
        if not self.queue:
            self.job.queued(self)

    def notify(self, value: object = None) -> None:
        """Implement `Team.notify`."""
        self.enter("notify")
        number = self._value_hash(value, "notify")
        instance = self._barrier("barrier", value)
        self.core.set_value(number)
        pending = AsyncCall(self, [instance], instance.record)
        engine = self.job.engine
        with engine.lock, engine.guarded(WaitState(instance)):
            self.notified = pending, value
            if instance.net is None or not self.exchanges:
                pending.arrive()
                self.job.queued(self)
            else:  # across nodes the barrier's messages must move on while this thread computes
                self.post(pending)

    def wait(self, value: object = None) -> None:
        """Implement `Team.wait`."""
        self.job.check()
        self.job.check_outside("wait")
        if self.notified is None:
            raise XupcError("wait: no notify() came before it: call notify() first")
        pending, given = self.notified
        if self.queue:
            self.drain()
        else:
            with self.job.callers.within("wait", self):
                pending.finish()
        with self.job.engine.lock:
            self.notified = None
            self.job.queued(self)
        if pending.error is not None:
            raise pending.error
        if value is not None and given is not None and value != given:
            error = CollectiveMismatchError(
                f"wait: value {show(value)} on thread {self.rank}, whose notify had {show(given)}"
            )
            self.fail(error, CallRecord("wait", [("value", show(value))]), synchronising=False)


def _by_number(teams: Iterable[_Team]) -> list[_Team]:
    """Return teams in an order that is the same on all threads."""
    return sorted(teams, key=lambda team: team.number)


def _nothing() -> None:
    """Stand for a weak reference to nothing."""
