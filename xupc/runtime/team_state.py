"""What the runtime knows of a team, and its barriers; `xupc.api.team.Team` is what programs hold.

A team owns what its calls share: the running fingerprint and operation number (in
the core), its plans, and where its messages go.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..algorithms import registry
from ..api.argument_checks import as_integer
from ..backends.interpreter import interpreter as python_engine
from ..backends.native.lowering import Exchange, lower
from ..backends.native.native_core import core, invalidate
from ..comm.mpi import AGAIN, BARRIER, KINDS, LOW_BITS, TURNS
from ..comm.plan_messages import NetContext, rounds_among
from ..errors import CollectiveMismatchError, HeapError, XupcError, show
from ..fingerprint import fingerprint
from ..flags import ALGORITHM_MASK
from ..health.call_record import CallRecord
from ..health.mismatch_recovery import Behind, MismatchDetector
from ..plan.plan import Plan, barrier_plan
from ..plan.recorder import trace
from ..plan.steps import OP_SCRATCH_BYTES, SLOTS, STAGING_BYTES
from ..topology.tree import ThreadTree, Tree
from ..tuning.selection import Place, Table
from .async_queue import AsyncCall
from .dropped_teams import Hold, Returns
from .executor import HOT_NS, WaitState
from .job import RemoteCompletion
from .operand_binding import BoundOperand, ScratchOperand
from .team_resources import TEAMS, TeamResources

if TYPE_CHECKING:
    from ..reduction.kernels import Kernel
    from .job import Job

__all__ = ["TeamState"]

T = TypeVar("T")

RUN_AHEAD = 32
LAST_CALLS = RUN_AHEAD + 8  # a posted call may consist of several
PLANS = 512
INSTANCES = 512
_ERROR = fingerprint("error")


class LruCache(Generic[T]):
    """What was used last, at most `limit` by their keys; `dropped` is called with any other."""

    def __init__(self, limit: int, dropped: Callable[[T], object] | None = None) -> None:
        self._limit = limit
        self._dropped = dropped
        self._kept: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, build: Callable[[], T]) -> T:
        """The one of this key; `build()` makes it if it is not there."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
            return value
        self._kept[key] = value = build()
        if len(self._kept) > self._limit:
            _, old = self._kept.popitem(last=False)
            if self._dropped is not None:
                self._dropped(old)
        return value

    def clear(self) -> None:
        """Forget them all."""
        self._kept.clear()


class TeamState:
    """A team as the runtime keeps it, until all its threads give it back.

    It has no reference to the program's `Team`, so that a program that drops that one drops the
    team: see `xupc.runtime.dropped_teams`.

    Attributes
    ----------
    size, rank : int
        Number of threads and my place among them.
    threads : sequence of int
        Thread ids by rank.
    tree : Tree or ThreadTree
        Which of them share a node.
    parent : TeamState or None
        Of `node` and `roots`, the team that they are a part of; of others the world; None: it is
        the world.
    handle
        The program's `Team`, while there is one.
    """

    def __init__(
        self, job: Job, table: Table, threads: Sequence[int], parent: TeamState | None = None
    ) -> None:
        self.job = job
        self.table = table
        self.threads = threads
        self.parent = parent
        self.handle: Callable[[], Any] = _nothing
        self._hold: Callable[[], Hold | None] = _nothing
        self.size = len(threads)
        self.rank = threads.index(job.me)
        world = parent is None
        self.rank_tree: Tree = job.tree if world else job.tree.sub(threads)
        self.node_number = self.rank_tree.node_of(self.rank)
        self.node_root = self.rank_tree.node_root(self.node_number)
        self.spans_nodes = self.rank_tree.node_count > 1
        self.place = Place.of(
            self.rank_tree.node_sizes, job.network.family, job.transport, job.crowded
        )
        self.choices = table.at(self.place)
        self.tuning = table.tuning(self.place)
        if job.pids is None:
            self.tuning = {**self.tuning, "direct_min": 0}
        elif self.tuning["tried"] and self.tuning["direct_min"]:
            self.tuning = job.reaching.within(self.tuning, self.size)
        if job.native:
            self.exchange_group: Sequence[int] = [int(t) for t in self.rank_tree.node_roots]
            self.exchange_index = self.node_number
        else:
            self.exchange_group = range(self.size)
            self.exchange_index = self.rank
        self.exchanges = not job.native or self.rank == self.node_root
        self.notified: Any = None
        self.queue: deque[AsyncCall] = deque()
        self.differences = MismatchDetector(self)
        self.behind = Behind(self)
        self.settled: dict[int, int] = {}  # which led call a thread of another node has left
        self._programs: dict[int, Any] = {}
        programs = self._programs
        self._plans: LruCache[Plan] = LruCache(PLANS, lambda plan: programs.pop(id(plan), None))
        self.instances: LruCache[Any] = LruCache(INSTANCES)  # of calls on private arrays
        self._barriers: dict[Any, Any] = {}
        self._titles: dict[str, int] = {}
        self._failure: tuple[BaseException, str] | None = None  # of a user's function
        self._noted: deque[tuple[int, int, CallRecord]] = deque(
            maxlen=SLOTS
        )  # calls without a number
        self._buffer_taken = False
        self.freed = False
        self._ground: TeamResources | None = None
        self._parts: dict[str, TeamState | None] = {}

    @classmethod
    def world(cls, job: Job, table: Table) -> TeamState:
        """The team of all threads."""
        team = cls(job, table, range(job.threads))
        job.tuning = team.tuning
        team._stand_on(TeamResources.of_world(job))
        job.world = team
        return team

    # -- what it stands on -----------------------------------------------------------------
    def _stand_on(self, ground: TeamResources) -> None:
        self._ground = ground
        self.number = ground.number
        self.link = ground.link
        self.agreement = ground.agreement
        self.heap = ground.heap
        if self.parent is not None:
            self.heap.dealt_over = weakref.WeakMethod(self.public)
        self.core = self._make_core(ground)
        self.core.blocked = self.job.blocks(self)
        self.exchange_rounds = rounds_among(self.exchange_group, self.exchange_index, self.tuning)
        self.wire = self.link.wire = self._make_wire()
        if self.spans_nodes:
            self.job.spanning.append(self)

    def _open(self, *, here: bool = False) -> None:
        """Collective: make what the team stands on. Predefined teams come here when first used."""
        with self.job.whole("the opening of a team"):
            self._stand_on(TeamResources.open(self.job, self.threads, self.rank_tree, here=here))
        if self.job.next_team == TEAMS:  # its number was another team's, and so were its offsets
            for team in (self.job.world, *self.job.teams):
                team.forget_plans()
        insort(self.job.teams, self, key=lambda team: team.number)

    def _make_core(self, ground: TeamResources) -> Any:
        job = self.job
        if not job.native:
            return python_engine.Team(job.control, ground.number)
        n = self.rank_tree.node_size(self.node_number)
        spins, yields = (0, 2 * n + 2) if job.oversubscribed else (8000, 20)
        if self.spans_nodes:
            spins, yields = (
                (0, self.tuning["yields_before_sleep"]) if job.oversubscribed else (200, 1)
            )
            if self.rank == self.rank_tree.node_root(self.node_number):
                yields = 0  # the others give way to it; it has MPI to look at
        counter_mode = job.oversubscribed or n > 16
        return core.Team(
            ground.sync_address,
            n,
            self.rank_tree.local_index(self.rank),
            job.control.status_address,
            self.size == 1,
            self.spans_nodes,
            counter_mode,
            spins,
            yields,
            self._past_the_cache(),
            self._left_word(ground),
            ground.number,
            (job.control, ground.sync, job.pids),
            job.control.ring_address,
            0 if job.pids is None else job.pids.ctypes.data,
        )

    def _make_wire(self) -> Any:
        """What the core sends messages by; None: Python does."""
        network = self.job.network
        if not self.job.native or not self.spans_nodes:
            return None
        rounds, room = self.exchange_rounds
        return core.MessageEngine(
            network.functions,
            network.handle_of(self.link.comm),
            (LOW_BITS, network.tag_bits, TURNS, KINDS, BARRIER, AGAIN),
            rounds if self.exchanges else [],
            room,
            network.mpi.Exception,
            HOT_NS,
        )

    def _left_word(self, ground: TeamResources) -> int:
        """Where I write for other nodes' threads which led call I have left last."""
        address, stride = ground.heap.bind(ground.left_word)
        return address + stride * self.rank_tree.place(self.rank)

    def _past_the_cache(self) -> int:
        """From how many bytes on that a call writes on my node it does so; 0: never.

        As many for each core at work as one thread's copy must have at least to be faster so.
        """
        least = int(self.tuning["nt_store_min"]) if self.job.bypass else 0
        if not (least and self.tuning["tried"]):
            return least
        cores = min(self.job.cores, self.rank_tree.node_size(self.node_number))
        return max(least, self.job.bypass * cores)

    def unsettled(self, thread: int) -> RemoteCompletion | None:
        """What has to be asked before memory of a thread of another node is accessed.

        It must be as calls left it. A call that node roots lead ends on each node by itself, when
        the node's data is there. Its other promise, that the data is there on all nodes, only
        shows when a thread reads or writes another node's memory before the next barrier. That
        thread asks, one-sided, whether the owner has left the call.
        """
        epoch = self.core.debt
        if not epoch or self.settled.get(thread, 0) >= epoch or thread not in self.threads:
            return None
        assert self._ground is not None
        return RemoteCompletion(self, thread, epoch, self._ground.left_word)

    def __repr__(self) -> str:
        return f"<xupc team of {self.size} threads on {self.rank_tree.node_count} nodes>"

    # -- what programs have of it ----------------------------------------------------------
    @property
    def hold(self) -> Hold | None:
        """What keeps it from being given back; None if this thread's program has dropped it."""
        owner = self
        while owner.is_part:
            assert owner.parent is not None
            owner = owner.parent
        return owner._hold()

    make_handle: Callable[[TeamState, Hold], Any]
    """`Team`, which is made of this."""

    def held_by(self, hold: Hold) -> None:
        """Note when this has gone: then this thread's program has nothing of the team any more."""
        self._hold = weakref.ref(hold, lambda _: self.job.dropped.note(self))

    def public(self) -> Any:
        """The program's `Team`, a new one if need be; None if the program has dropped it."""
        handle, hold = self.handle(), self.hold
        return self.make_handle(self, hold) if handle is None and hold is not None else handle

    @property
    def is_part(self) -> bool:
        """True for the `node` and the `roots` of another one."""
        return self.parent is not None and self in self.parent._parts.values()

    @property
    def idle(self) -> bool:
        """Whether no call of it, or of its parts, is under way, and none has to be reported."""
        return all(
            not team.queue and team.notified is None and team._failure is None
            for team in (self, *self.opened_parts)
        )

    @cached_property
    def places(self) -> dict[int, int]:
        """Where in the node's memory the parts of my node's threads lie, by rank."""
        tree = self.rank_tree
        return {int(rank): tree.place(int(rank)) for rank in tree.members(self.node_number)}

    # -- parts of it -----------------------------------------------------------------------
    @property
    def tree(self) -> Tree | ThreadTree:
        """Which of its threads share a node."""
        return self.rank_tree if self.parent is None else ThreadTree(self.rank_tree, self.threads)

    def part(self, name: str) -> TeamState | None:
        """Its `node` or its `roots`; None if I am not in that. Costs nothing until it is used."""
        if name not in self._parts:
            here = self.rank_tree.members(self.node_number)
            ranks = here if name == "node" else self.rank_tree.node_roots
            threads = tuple(self.threads[rank] for rank in ranks.tolist())
            mine = self.job.me in threads
            self._parts[name] = TeamState(self.job, self.table, threads, self) if mine else None
        return self._parts[name]

    def split(self, color: int | None, key: int = 0) -> TeamState | None:
        """`Team.split`."""
        self.enter("split")
        self.job.dropped.relieve()
        record = CallRecord("split")
        try:
            mine = (
                int(color is not None),
                0 if color is None else _int64(color, "split", "color"),
                _int64(key, "split", "key"),
            )
        except Exception as e:
            return self.fail(e, record)  # type: ignore[no-any-return]
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
            threads = tuple(self.threads[rank] for _, rank in alike)
            team = TeamState(self.job, self.table, threads, self.job.world)
            team._open(here=True)
            return team

    def free(self) -> None:
        """`Team.free`."""
        if self.parent is None:
            raise ValueError("the world team cannot be freed: call xupc.finalize()")
        if self.is_part:
            raise ValueError("free: a predefined team ends with the one that it is a part of")
        self.enter("free")
        parts = self.opened_parts
        if any(part.notified is not None for part in parts):
            raise XupcError("free: not allowed between notify and wait, of its parts neither")
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
        """Predefined teams of mine that were used, and theirs."""
        used = [part for part in self._parts.values() if part is not None and part._ground]
        return [*used, *(inner for part in used for inner in part.opened_parts)]

    def end_together(self, others: Iterable[TeamState], record: CallRecord) -> None:
        """Meet for the last time, with other teams that end with this one.

        Nothing is posted on them any more; calls of theirs that differed are said now, on all
        threads.
        """
        self.meet(fingerprint(record.name), record)  # who is elsewhere is here, too
        error: Exception | None = None
        with self.job.whole(record.name):
            for team in _by_number(others):
                try:
                    team.meet(fingerprint(record.name), CallRecord(record.name))
                except Exception as e:  # of a function of the user's, too
                    self.job.check()
                    error = error or e
            if error is not None:
                self.fail(error, record)
            self.meet(fingerprint(record.name), record)

    def close(self) -> None:
        """Blocking, all its threads together: the end, without a word."""
        for part in _by_number(self.opened_parts):
            if not part.freed:
                part.close()
        assert self._ground is not None
        self.freed = True
        self._hold = _nothing
        self.job.teams.remove(self)
        if self.spans_nodes:
            self.job.spanning.remove(self)
        self.job.engine.cover(self)
        self.forget_plans()
        self._noted.clear()
        self.core.forget()
        self._ground.close()
        self._parts.clear()  # and no reference cycle is left to be collected
        del self.differences, self.behind

    def forget_plans(self) -> None:
        """Some hold addresses of memory that has gone, whose offsets may come again."""
        self._plans.clear()
        self._programs.clear()
        self.instances.clear()
        self._barriers.clear()

    @property
    def usable(self) -> bool:
        """Whether calls can be made on it."""
        from ..api import lifecycle

        return not self.freed and self.job is lifecycle.world().job

    def rank_of(self, thread: int) -> int | None:
        """The rank of a thread, None if it is not in the team."""
        try:
            return self.threads.index(thread)
        except ValueError:
            return None

    # -- what the engine asks ---------------------------------------------------------
    def call_tag(self, instance: Any, kind: int) -> int:
        """The tag of a call's data and signals."""
        return self.link.call_tag(instance.op, kind, instance.fp)

    # -- plans and instances -------------------------------------------------------------
    def make(
        self, plan: Plan, bounds: Sequence[BoundOperand], signature: int, record: CallRecord
    ) -> Any:
        """An instance of a plan bound to operands."""
        job = self.job
        if plan.scratch or plan.private:
            bounds = [*bounds, *self._scratch(plan)]
        call = self._call_number(record.title)
        instance: Any
        if job.native:
            key = id(plan)
            program = self._programs.get(key)
            if program is None or program.plan is not plan:
                place = bounds[0].place if bounds else None
                program = core.Program(lower(plan, self.rank_tree, place))
                self._programs[key] = program
            pairs = [b.pair for b in bounds]
            instance = core.Instance(
                self.core, program, bounds, pairs, signature, call, record
            )
        else:
            program = python_engine.Program(plan)
            instance = python_engine.Instance(
                self.core, program, list(bounds), signature, call, record
            )
        instance.owner = self
        by_hand = plan.kernel is not None and plan.kernel.code is None
        if self.spans_nodes or not job.native or by_hand:
            instance.net = NetContext(job, self, list(bounds))
        if self.wire is not None:
            instance.join(self.wire)
            for step in instance.program.python_steps:
                if isinstance(step, Exchange):
                    sends, recvs = map(instance.net.pieces, (step.sends, step.recvs))
                    instance.lead(sends, recvs, step.before)
        return instance

    def _scratch(self, plan: Plan) -> list[BoundOperand]:
        """op_scratch and staging buffer; HeapError if there is no room for the latter."""
        heap = self.heap
        start = heap.global_end + SLOTS * OP_SCRATCH_BYTES
        if not self._buffer_taken and plan.uses_buffer:
            heap.take(start, STAGING_BYTES, plan.collective)
            self._buffer_taken = True
        return [ScratchOperand(heap, heap.global_end), BoundOperand(heap, start)]

    # -- functions of the user's that raise ----------------------------------------------
    def function_failed(self, error: Exception, call: str) -> None:
        """A function raised in a call of mine: all threads will when they next meet."""
        if self._failure is None:
            if isinstance(error, StopIteration):  # which would end a generator on its way
                cause, error = error, RuntimeError(f"the function of {call} raised {error!r}")
                error.__cause__ = cause
            with contextlib.suppress(Exception):  # of one that takes none
                error.add_note(f"raised by the function of {call} on thread {self.rank}")
            self._failure = error, call
            # another one on each thread: all may have failed alike
            self.core.spoil(fingerprint("function", self.rank))

    def raise_failure(self) -> None:
        """Raise what a function of mine raised, if one did, and forget it."""
        if self._failure is not None:
            error, self._failure = self._failure[0], None
            self.core.spoil(0)
            raise self.job.agree(error)

    def account(self, record: CallRecord) -> CallRecord:
        """What I say of my call when threads meet to find out what is wrong."""
        if self._failure is None:
            place = self.core.unread
            if place is not None:
                giver = int(self.job.tree.members(self.job.node)[place])
                record = record.with_more([])
                record.error = XupcError(
                    f"thread {self.job.me} can no longer copy between its array and that of thread "
                    f"{giver}: was one of them unmapped, or mapped anew?"
                )
                record.shared_error = True
            return record
        error, call = self._failure
        self._failure = None
        # by the error's own methods, maybe
        return self.job.calling_out.run(partial(CallRecord.of_function, call, error))

    def last_calls(self, last: int) -> list[tuple[int, int, CallRecord]]:
        """(operation, running fingerprint after it, record) of my last calls up to `last`.

        At least of all since the threads of the team last met. What moved nothing has the
        number of the call before it.
        """
        core = self.core
        every = range(max(core.since, last - LAST_CALLS) + 1, last + 1)
        calls = [(op, core.fp_after(op), core.record_of(op)) for op in every]
        calls += [note for note in self._noted if calls[0][0] <= note[0] <= last]
        return sorted(calls, key=lambda call: call[0])

    def _call_number(self, title: str) -> int:
        """The published text of a kind of call."""
        number = self._titles.get(title)
        if number is None:
            number = self.job.control.note(title)
            if len(self._titles) < 4096:
                self._titles[title] = number
        return number

    def algorithm_flag(self, collective: str, flags: int, nbytes: int) -> int:
        """The algorithm flag among those of a call, else the one that the table chooses."""
        return flags & ALGORITHM_MASK or self.choices.choose(collective, nbytes)

    def planned(
        self,
        collective: str,
        flags: int,
        nbytes: int,
        sync: tuple[str, str],
        key: Any,
        arguments: Sequence[object],
        kernel: Kernel | None = None,
        *,
        private: bool = False,
    ) -> Plan:
        """The cached plan of a call.

        Parameters
        ----------
        collective : str
            What its algorithms are registered under.
        flags : int
            The call's; without an algorithm flag the table chooses by `nbytes`.
        sync : tuple of str
            ``(in, out)``.
        key : hashable
            What `arguments` are known by.
        arguments : sequence
            What the algorithm takes.
        kernel, private
            As for `trace`.
        """
        flag = self.algorithm_flag(collective, flags, nbytes)
        entry = registry.find(collective, flag)

        def build() -> Plan:
            return trace(
                entry.function, entry.name, collective, self.rank, self.rank_tree, sync,
                self.tuning, arguments, kernel, private=private,
            )  # fmt: skip

        what = None if kernel is None else kernel.key
        return self._plans.get((collective, flag, sync, what, key), build)

    # -- calls ---------------------------------------------------------------------------
    def enter(self, call: str, *, posted: bool = False) -> None:
        """Before any call on this team: usable, not between notify and wait, not too far ahead.

        Before one that is not `posted`, those that were come to their end.
        """
        self.job.check()
        self.job.check_outside(call)
        self.job.callers.check(call, self)
        if self.freed:
            raise ValueError(f"{call}: team: it was freed")
        if self._ground is None:
            self._open()
        if self.notified is not None:
            raise XupcError(f"{call}: not allowed between notify and wait")
        if posted:
            return
        if self.queue:
            self.drain()
            self.job.check()
        if self.core.unsynced >= RUN_AHEAD:
            self.catch_up()

    def catch_up(self) -> None:
        """Let all threads meet after many calls without a barrier."""
        self._barrier("run-ahead", None).execute()

    # -- posted calls ----------------------------------------------------------------------
    def post(self, pending: AsyncCall) -> None:
        """Put a call into the queue, and begin it if it is the first there."""
        with self.job.engine.lock:
            self.queue.append(pending)
            self.job.queued(self)
            self.progress()

    def ahead(self) -> Any:
        """The barrier that has to come before the next call after many without one, else None."""
        return self._barrier("run-ahead", None) if self.core.unsynced >= RUN_AHEAD else None

    def progress(self) -> bool:
        """Move the queue on without waiting; True if a call came to its end."""
        ended = False
        while self.queue and (first := self.queue[0]).advance():
            self._ended(first)
            ended = True
        return ended

    def drain(self, last: AsyncCall | None = None) -> None:
        """Wait until the queue is empty, or a call of it is over."""
        with self.job.callers.within("a wait for posted calls", self), self.job.engine.lock:
            while self.queue and not (last is not None and last.done):
                self.job.check()
                first = self.queue[0]
                first.finish()
                self._ended(first)

    def _ended(self, first: AsyncCall) -> None:
        """The first call of the queue is over; a signal's handler may have seen that before."""
        if not self.queue or self.queue[0] is not first:
            return
        self.queue.popleft()
        if not self.queue:
            self.job.queued(self)

    def meeting(self, signature: int, record: CallRecord) -> Any:
        """The instance of a barrier in which all threads must have the same signature."""
        plan = self._plans.get("barrier", lambda: barrier_plan(self.rank, self.size))
        return self.make(plan, [], signature, record)

    def meet(self, signature: int, record: CallRecord) -> None:
        """Be in such a barrier."""
        self.meeting(signature, record).execute()

    def fail(
        self,
        error: BaseException,
        record: CallRecord,
        synchronising: bool = True,
        *,
        posted: bool = False,
    ) -> Any:
        """A call with a bad argument: raise it here and let no other thread hang.

        Where the call synchronises, all threads meet: if every one of them has an
        error each raises its own, else the others raise CollectiveMismatchError.
        """
        record.error = error
        record.shared_error = isinstance(error, HeapError)
        try:
            self._meet_failed(record, synchronising, posted=posted)
            raise error
        finally:
            record.settle()

    def _meet_failed(self, record: CallRecord, synchronising: bool, *, posted: bool) -> None:
        if not (self.size > 1 and synchronising):
            self.note(_ERROR, record)
            return
        instance = self.meeting(_ERROR, record)
        if posted or self.queue:  # whatever comes of it, this is what I raise
            self.post(AsyncCall(self, [instance], record))
        else:
            instance.begin()
            self.job.engine.drive(instance)

    def note(self, signature: int, record: CallRecord) -> None:
        """A call that moves nothing: its signature, when those posted before it are over."""
        def nothing() -> Iterator[Any]:
            self.core.mix(signature)
            self._noted.append((self.core.op, self.core.fp, record))
            yield from ()

        if not self.queue:
            next(nothing(), None)
        else:
            self.post(AsyncCall(self, nothing(), record))

    def _barrier(self, name: str, value: Any) -> Any:
        """A barrier's instance, kept by name; its value travels beside it."""
        instance = self._barriers.get((name, value is None))
        if instance is None or value is not None:
            record = CallRecord(name, [("value", show(value))])
            instance = self.meeting(fingerprint(name), record)
            self._barriers[name, value is None] = instance
        return instance

    def _value_hash(self, value: Any, call: str) -> int:
        """What stands for a barrier's value; TypeError, in step, if it is neither int nor str."""
        try:
            if value is None:
                return 0
            if isinstance(value, str):
                return fingerprint("value", repr(str(value))) | 1
            return fingerprint("value", hex(value)) | 1
        except Exception as e:
            error = TypeError(f"{call}: value: expected an int or a str, got {show(value)}")
            error.__cause__ = e
            self.fail(error, CallRecord(call))
            raise

    @property
    def plain_barrier(self) -> Any:
        """The instance of a barrier without a value."""
        return self._barriers["barrier", True]

    def barrier(self, value: object = None) -> None:
        """`Team.barrier`."""
        self.enter("barrier")
        number = self._value_hash(value, "barrier")
        instance = self._barrier("barrier", value)
        self.core.set_value(number)
        instance.execute()

    def notify(self, value: object = None) -> None:
        """`Team.notify`."""
        self.enter("notify")
        number = self._value_hash(value, "notify")
        instance = self._barrier("barrier", value)
        self.core.set_value(number)
        pending = AsyncCall(self, [instance], instance.record)
        engine = self.job.engine
        with engine.lock, engine.guarded(WaitState(self.job, instance)):
            self.notified = pending, value
            if instance.net is None or not self.exchanges:
                pending.arrive()
                self.job.queued(self)
            else:  # others wait for what I go on telling them, whatever I do meanwhile
                self.post(pending)

    def wait(self, value: object = None) -> None:
        """`Team.wait`."""
        self.job.check()
        self.job.check_outside("wait")
        if self.notified is None:
            raise XupcError("wait: there was no notify")
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


def _by_number(teams: Iterable[TeamState]) -> list[TeamState]:
    """In an order that is the same on all threads."""
    return sorted(teams, key=lambda team: team.number)


def _nothing() -> None:
    """Stand for a weak reference to nothing."""


def _int64(value: Any, call: str, argument: str) -> int:
    number = as_integer(value, call, argument)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{call}: {argument}: expected 64 bits, got {number}")
    return number
