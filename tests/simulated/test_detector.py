"""The simulator must notice: every algorithm is broken on purpose, in every way, one at a time.

A mutation that goes undetected is a step that does nothing.  `harmless` lists which
ones may be, and why; there are only steps that every plan has for the sake of
uniformity, never one that an algorithm itself requires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
from simulated.matrix import (
    ENTRIES,
    SYNCS,
    TUNINGS,
    Planner,
    Story,
    Sync,
    WrongMemoryError,
    another,
    roots_of,
)
from simulated.mutations import Mutation, mutations
from support.soak import WHOLE

from xupc.algorithms.registry import Entry, find
from xupc.backends.simulator.errors import (
    DeadlockError,
    ProtocolError,
    RaceError,
    SimulationError,
    WrongBytesError,
)
from xupc.backends.simulator.script import Action, Call, UserBarrier, UserRead, UserWrite
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import PULL
from xupc.plan.plan import Plan
from xupc.plan.steps import (
    Barrier,
    BlockRef,
    Copy,
    Get,
    NetSignal,
    NetWait,
    Ranks,
    Recv,
    Send,
    SetTicket,
    Signal,
    Step,
    Wait,
    WaitTicket,
)
from xupc.topology.tree import Tree

EVERY_ENTRY = pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{e.collective}-{e.name}" for e in ENTRIES]
)
THROUGH_SCRATCH = [
    e for e in ENTRIES if e.collective in ("exchange_in_place", "permute_in_place")
]
DIRECT = [e for e in ENTRIES if e not in THROUGH_SCRATCH]
PLACEMENTS = ([0, 0, 1, 1, 2], [0, 1, 0, 2], [0, 0, 0])
SIZES = (("large", 17), ("small", 13))
FEWER_BYTES = dict.fromkeys(("exchange", "exchange_in_place"), (("large", 9), ("small", 5)))
FEWER_SYNCS = {
    "exchange": SYNCS[::2],  # each mode on either side, with itself and another
    **{entry.collective: SYNCS[::4] for entry in ENTRIES if entry.collective.endswith("in_place")},
}
"""What moves a block from every thread to every thread takes the simulator longer."""


# --- what may go unnoticed ------------------------------------------------------------
_AT_THE_BARRIER = "a leaf's mates have seen all its chunks, and they are at the barrier too"
_LAST_ARRIVAL = (
    "the last arrival, which mates have waited for, comes after all sends from their memory"
)
_OWN_DATA = "the net lane moves only its own thread's data, so it need not know who has entered"
KNOWN = {
    ("broadcast multicore", "lanes not tied", "*", "all"): _AT_THE_BARRIER,
    ("gather_all multicore", "lanes not tied", "*", "my"): _LAST_ARRIVAL,
    ("broadcast_in_place multicore", "lanes not tied", "*", "all"): _AT_THE_BARRIER,
    ("gather_all_in_place multicore", "lanes not tied", "*", "my"): _LAST_ARRIVAL,
    ("gather_all_in_place push", "lanes not tied", "my", "*"): _OWN_DATA,
    ("exchange push", "lanes not tied", "my", "*"): _OWN_DATA,
    ("gather_all push", "lanes not tied", "my", "*"): _OWN_DATA,
}
"""(algorithm, mutation, IN, OUT) -> why nobody may notice in some placements."""


def _own(plan: Plan, step: Step) -> bool:
    """Return whether the memory that a request uses is its own thread's."""
    if isinstance(step, Send):
        return step.src.thread == plan.rank and not (step.count > 1 and step.src.thread_step)
    if isinstance(step, Recv | Get):
        return step.dst.thread == plan.rank and not (step.count > 1 and step.dst.thread_step)
    return True


def _tells(plan: Plan, step: Step) -> bool:
    """Return whether the step notifies other threads of this thread's progress."""
    to_others = isinstance(step, Signal) and set(step.to) != {plan.rank}
    return to_others or isinstance(step, NetSignal | Barrier)


def harmless(plan: Plan, lane: int, i: int) -> str | None:
    """Why the plan would do without step i of the lane, or None."""
    step = plan.lanes[lane][i]
    if isinstance(step, Signal) and set(step.to) == {plan.rank}:
        return "a signal to nobody but myself"
    if isinstance(step, SetTicket):
        return _harmless_post(plan, lane, i)
    if not isinstance(step, WaitTicket):
        return None
    for other, steps in enumerate(plan.lanes):
        for k, s in enumerate(steps):
            if isinstance(s, SetTicket) and s.ticket == step.ticket:
                return _harmless_post(plan, other, k)
            if getattr(s, "ticket", None) == step.ticket and not isinstance(s, WaitTicket):
                return _known_at_end(plan, plan.lanes[lane][i + 1 :], s)
    return None


def _harmless_post(plan: Plan, lane: int, i: int) -> str | None:
    node, net = plan.lanes
    if lane == 0 and all(isinstance(s, Signal | NetSignal | SetTicket) for s in node[:i]):
        return "the net lane starts at once: the node lane has done nothing yet"
    if lane == 1:
        joined = node.index(WaitTicket(net[i].ticket))  # type: ignore[attr-defined]
        if not any(_tells(plan, s) for s in node[joined:]):
            return "the end of the call waits for the net lane anyway"
        if plan.sync[1] == "my" and all(_own(plan, s) for s in net):
            return "nobody else's memory is concerned, and the end of the call waits"
    return None


def _known_at_end(plan: Plan, after: tuple[Step, ...], request: Step) -> str | None:
    """Return why no thread needs the request's end before the end of the call, or None."""
    if isinstance(request, NetSignal):
        return "an empty message concerns no memory"
    if isinstance(request, NetWait):
        if any(isinstance(s, Copy | Get | Send | Recv) or _tells(plan, s) for s in after):
            return None
        return "the end of the call waits for it anyway"
    if isinstance(request, Recv | Get) and any(isinstance(s, Send) for s in after):
        return None  # it may be passed on
    out = plan.sync[1]
    if out == "all" and any(isinstance(s, Barrier | SetTicket) for s in after):
        return None
    told = any(_tells(plan, s) or isinstance(s, SetTicket) for s in after)
    if isinstance(request, Send) and out == "no":
        return "flow control: the end of the call waits for it anyway"
    if (out == "my" and _own(plan, request)) or not told:
        return "nobody else's memory is concerned, and the end of the call waits"
    if out == "no" and not any(_tells(plan, s) for s in after):
        return "flow control: the end of the call waits for it anyway"
    return None


def _allowed(mutation: Mutation, plans: list[Plan]) -> str | None:
    if mutation.at is None:
        return None
    me, lane, i = mutation.at
    plan = plans[me]
    step = plan.lanes[lane][i]
    name = mutation.name
    if name == "drop WaitTicket":
        posts = {s.ticket for s in plan.steps if isinstance(s, SetTicket)}
        name = "lanes not tied" if step.ticket in posts else name  # type: ignore[attr-defined]
    if name in ("drop WaitTicket", "drop Signal", "Signal too early", "lanes not tied"):
        who = f"{plan.collective} {plan.algorithm}"
        into, out = plan.sync
        for key in product([who], [name], [into, "*"], [out, "*"]):
            if key in KNOWN:
                return KNOWN[key]
        return harmless(plan, lane, i)
    return None


# --- breaking the algorithms ------------------------------------------------------------
def _story(planner: Planner, entry: Entry, sync: Sync, tuning: dict[str, int], n: int) -> Story:
    size = planner.tree.size
    root = _root(entry, size)
    story = Story(planner, size * n, 1)
    for tight in (True, True, False, True):
        story.call(entry, root, n, sync, tuning, tight=tight)
    other = another(entry, 0)
    story.call(other, roots_of(other, size)[-1], n, sync, tuning, tight=True)
    story.call(entry, root, n, sync, tuning, tight=True)
    return story


def _root(entry: Entry, size: int) -> int:
    """A root in the middle; a permutation with near and far, alone and together."""
    return min(2 if entry.collective == "permute" else 1, roots_of(entry, size)[-1])


def _few(found: list[Mutation]) -> list[Mutation]:
    """Return the first and the last mutation of each kind on each lane."""
    kept: dict[tuple[object, ...], Mutation] = {}
    for mutation in found:
        place = mutation.at[:2] if mutation.at else mutation.what
        kept.setdefault((mutation.name, place, "first"), mutation)
        kept[mutation.name, place, "last"] = mutation
    return list({id(m): m for m in kept.values()}.values())


Try = tuple[Mutation, list[Plan], str, Exception | None]
"""A mutation, the plans that it was made of, where, and what it was noticed by."""


def _tries(entry: Entry) -> Iterator[Try]:
    """Every mutation on three placements, in many sync modes, large and small.

    An ordinary run has three pairs of sync modes, large and small ones in turn.
    """
    number = 0
    for labels in PLACEMENTS:
        tree = Tree(labels)
        whole = Planner(tree)
        root = _root(entry, tree.size)
        for sync in FEWER_SYNCS.get(entry.collective, SYNCS if WHOLE else SYNCS[::4]):
            sizes = FEWER_BYTES.get(entry.collective, SIZES)
            some = sizes if WHOLE else (sizes[(number := number + 1) % 2],)
            for name, n in some:
                tuning = TUNINGS[name][0]
                plans = [p.plan for p in whole.programs(entry, sync, tuning, root, n)]
                _story(whole, entry, sync, tuning, n).run()
                for mutation in _few(list(mutations(plans))):
                    planner = whole.with_plans(plans, mutation.plans)
                    where = f"{labels}, IN_{sync[0]} OUT_{sync[1]}"
                    found: Exception | None = None
                    try:
                        _story(planner, entry, sync, tuning, n).run(at_once=True)
                    except (SimulationError, WrongMemoryError) as problem:
                        found = problem
                    yield mutation, plans, where, found


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize(
    "entry", THROUGH_SCRATCH, ids=[f"{e.collective}-{e.name}" for e in THROUGH_SCRATCH]
)
def test_what_goes_through_scratch_is_noticed_if_broken(entry: Entry) -> None:
    """Some waits may be missing: in a turn that involves no thread of its node, none is needed."""
    noticed: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for mutation, _, _, found in _tries(entry):
        (missed if found is None else noticed)[mutation.name] += 1
    moves = ("Copy", "Swap", "Get", "Send", "Recv")
    assert not [f"drop {move}" for move in moves if missed[f"drop {move}"]]
    for kind in {*noticed, *missed} & {"drop Wait", "drop Barrier", "drop Signal", "no Barrier"}:
        assert noticed[kind] > missed[kind], (kind, noticed[kind], missed[kind])
    assert noticed.total() > 9 * missed.total(), missed


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("entry", DIRECT, ids=[f"{e.collective}-{e.name}" for e in DIRECT])
def test_broken_algorithms_are_noticed(entry: Entry) -> None:
    """Every mutation, but for those that are known to be harmless."""
    noticed: Counter[str] = Counter()
    missed = []
    used: set[str | None] = set()
    for mutation, plans, where, found in _tries(entry):
        if found is not None:
            noticed[type(found).__name__] += 1
            continue
        reason = _allowed(mutation, plans)
        used.add(reason)
        if reason is None:
            missed.append(f"{where}, {mutation}")
    assert not missed, f"{len(missed)} broken plans pass:\n" + "\n".join(missed[:20])
    who = f"{entry.collective} {entry.name}"
    if WHOLE:
        assert {reason for key, reason in KNOWN.items() if key[0] == who} <= used
    assert noticed["RaceError"]
    assert noticed["DeadlockError"] or noticed["ProtocolError"]


# --- what the findings say ----------------------------------------------------------------
def _plan(me: int, size: int, node: list[Step], net: list[Step] | None = None) -> Plan:
    tickets = 1 + max((getattr(s, "ticket", -1) for s in [*node, *(net or [])]), default=-1)
    lanes = (tuple(node), tuple(net or []))
    return Plan("gather", "by hand", me, size, lanes, tickets, ("no", "no"))


def _simulate(
    labels: list[int],
    lanes: list[list[Step]],
    before: dict[int, list[Action]] | None = None,
    after: dict[int, list[Action]] | None = None,
    seed: int | None = None,
) -> None:
    tree, size = Tree(labels), len(labels)
    programs = [Program(_plan(me, size, steps), tree) for me, steps in enumerate(lanes)]
    call = Call(programs, (("dst", 0), ("src", 0)))
    scripts = [
        [*(before or {}).get(me, []), call, *(after or {}).get(me, [])] for me in range(size)
    ]
    memory = {name: [bytearray(16) for _ in range(size)] for name in ("dst", "src")}
    Simulation(tree, memory, scripts, seed).run()


DST, SRC = BlockRef(0, 0), BlockRef(1, 0)


def test_race_names_both_steps_and_the_bytes() -> None:
    """Thread, call, lane, index and text of both, and where they meet."""
    with pytest.raises(RaceError) as caught:
        _simulate([0, 0], [[Copy(DST, SRC, 8)], [Signal(0, Ranks(0)), Copy(DST + 6, SRC, 4)]])
    text = str(caught.value)
    assert "race on dst@0[6:8]" in text
    assert "writes: thread 0, call 0 (gather by by hand), node lane, step 0: copy" in text
    assert "writes: thread 1, call 0 (gather by by hand), node lane, step 1: copy" in text
    assert "missing order" in text
    assert len(caught.value.findings) == 1


def test_order_makes_it_no_race() -> None:
    """A signal, a barrier, a message: each orders the same two copies."""
    first, second = Copy(DST, SRC, 8), Copy(DST + 6, SRC, 4)
    _simulate([0, 0], [[first, Signal(0, Ranks(1))], [Wait(0, Ranks(0)), second]])
    _simulate([0, 0], [[first, Barrier()], [Barrier(), second]])
    lanes = [
        [first, Send(Ranks(1), SRC, 1, 0)],
        [Recv(Ranks(0), BlockRef(0, 1), 1, 0), WaitTicket(0), Send(Ranks(2), BlockRef(1, 1), 1, 1)],
        [Recv(Ranks(1), BlockRef(0, 2), 1, 0), WaitTicket(0), second],
    ]
    _simulate([0, 1, 0], lanes)
    with pytest.raises(RaceError):
        _simulate([0, 1, 0], [*lanes[:2], [lanes[2][0], second]])


def test_a_send_tells_the_sender_nothing() -> None:
    """Its ticket gives no order from receiver to sender."""
    lanes: list[list[Step]] = [
        [Send(Ranks(1), SRC, 1, 0), WaitTicket(0), Get(DST, BlockRef(1, 1), 4, 1)],
        [Copy(BlockRef(1, 1), BlockRef(0, 1), 4), Recv(Ranks(0), BlockRef(0, 1, 8), 1, 0)],
    ]
    with pytest.raises(RaceError, match=r"src@1\[0:4\]"):
        _simulate([0, 1], lanes)


def test_requests_last_until_their_ticket() -> None:
    """Send's source and Recv's target may not be touched in between."""
    send, recv = Send(Ranks(1), SRC, 4, 0), Recv(Ranks(0), BlockRef(0, 1), 4, 0)
    scribble = Copy(SRC, DST, 1)
    with pytest.raises(RaceError, match=r"src@0\[0:1\]"):
        _simulate([0, 1], [[send, scribble], [recv]])
    _simulate([0, 1], [[send, WaitTicket(0), scribble], [recv]])
    with pytest.raises(RaceError, match=r"dst@1\[0:4\]"):
        _simulate([0, 1], [[send], [recv, Copy(BlockRef(1, 1), BlockRef(0, 1), 4)]])


def test_a_get_is_not_noticed_by_its_target() -> None:
    """The target's user may not write before the target is notified."""
    write: dict[int, list[Action]] = {1: [UserWrite("src", 1, 0, b"x")]}
    get: list[list[Step]] = [[Get(DST, BlockRef(1, 1), 4, 0)], []]
    with pytest.raises(RaceError, match="user writes src@1") as caught:
        _simulate([0, 1], get, after=write)
    assert "reads: thread 0" in str(caught.value)
    told: list[list[Step]] = [
        [*get[0], WaitTicket(0), NetSignal(0, Ranks(1), 1)],
        [NetWait(0, Ranks(0), 0)],
    ]
    _simulate([0, 1], told, after=write)
    with pytest.raises(RaceError):
        _simulate([0, 1], [[get[0][0], NetSignal(0, Ranks(1), 1)], told[1]], after=write)


def test_user_barrier_orders() -> None:
    """Accesses before and after it do not race."""
    write, read = UserWrite("src", 1, 0, b"ab"), UserRead("src", 1, 0, b"ab")
    barrier = UserBarrier()
    _simulate([0, 1], [[], []], after={0: [write, barrier], 1: [barrier, read]})
    with pytest.raises(RaceError, match="thread 1, before call 1: user reads"):
        _simulate([0, 1], [[], []], after={0: [write], 1: [read]})


def test_deadlock_names_everybody_and_his_step() -> None:
    """Two threads that wait for each other."""
    lanes: list[list[Step]] = [
        [Wait(0, Ranks(1)), Signal(0, Ranks(1))],
        [Wait(0, Ranks(0)), Signal(0, Ranks(0))],
    ]
    with pytest.raises(DeadlockError) as caught:
        _simulate([0, 0], lanes)
    text = str(caught.value)
    assert "2 blocked" in text
    for me in range(2):
        assert f"thread {me}, call 0 (gather by by hand), node lane, step 0: wait" in text
        assert f"(thread {me} stands at 0)" in text


def test_deadlock_of_messages() -> None:
    """A message that no thread receives is a deadlock: a send completes only at its receipt."""
    with pytest.raises(DeadlockError, match=r"t0 is not set \(thread 0.*send +4 B.*-> thread 1"):
        _simulate([0, 1], [[Send(Ranks(1), SRC, 4, 0)], []])
    both: list[list[Step]] = [
        [
            Send(Ranks(1 - me), BlockRef(1, me), 4, 0),
            WaitTicket(0),
            Recv(Ranks(1 - me), BlockRef(0, me), 4, 1),
        ]
        for me in range(2)
    ]
    with pytest.raises(DeadlockError, match=r"need +t0 \(set by thread 1.*send"):
        _simulate([0, 1], both)


@pytest.mark.parametrize(
    ("labels", "lanes", "message"),
    [
        (
            [0, 1],
            [[Send(Ranks(1), SRC, 4, 0)], [Recv(Ranks(0), BlockRef(0, 1), 5, 0)]],
            r"message of 4 B meets a receive of 5 B:\n.*thread 0.*send.*\n.*thread 1.*recv",
        ),
        (
            [0, 1],
            [[Copy(DST, BlockRef(1, 1), 4)], []],
            "step 0: copy .* thread 1 is not on the node",
        ),
        ([0, 1], [[Signal(0, Ranks(1))], []], "signal .* thread 1 is not on the node of thread 0"),
        ([0, 1], [[], [Wait(0, Ranks(0))]], "wait .* thread 0 is not on the node of thread 1"),
        ([0, 1], [[Send(Ranks(1), BlockRef(1, 1), 4, 0)], []], "thread 1 is not on the node"),
        ([0, 0], [[Copy(DST, BlockRef(1, 2), 4)], []], "thread 2 does not exist"),
        (
            [0, 0, 0],
            [[Signal(0, Ranks(1))], [Wait(0, Ranks(0))], [Wait(0, Ranks(0))]],
            "thread 2.*thread 0 has signalled 1, but not 1 times for thread 2",
        ),
        (
            [0, 0],
            [[Signal(0, Ranks(1), 2), Signal(0, Ranks(1), 1)], []],
            "the channel stood at 2 already",
        ),
        ([0, 0], [[SetTicket(0), SetTicket(0)], []], "ticket t0 was in use already"),
    ],
)
def test_protocol_errors_name_the_step(
    labels: list[int], lanes: list[list[Step]], message: str
) -> None:
    """Plans that no engine could run raise ProtocolError."""
    with pytest.raises(ProtocolError, match=message):
        _simulate(labels, lanes)


def test_different_calls_at_a_barrier() -> None:
    """A thread that is a barrier behind."""
    with pytest.raises(ProtocolError, match="different calls at a barrier: thread 0 in call 0"):
        _simulate([0, 0], [[Barrier()], []], after={1: [UserBarrier()]})


def test_accesses_outside_the_memory() -> None:
    """No block may lie beyond its array."""
    with pytest.raises(ProtocolError, match=r"dst@0\[10:18\].*16 bytes"):
        _simulate([0, 0], [[Copy(DST + 10, SRC, 8)], []])


def test_peers_on_my_node_are_left_out() -> None:
    """Send, Recv, Get and the empty messages go off the node only."""
    everyone = Ranks(0, 3)
    lanes: list[list[Step]] = [
        [Send(everyone, SRC, 2, 0, peer_step=2), NetSignal(0, everyone, 1)],
        [Get(BlockRef(0, 1), BlockRef(1, 0, 0, 1), 2, 0, count=2)],
        [Recv(everyone, BlockRef(0, 2), 2, 0), NetWait(0, Ranks(0), 1)],
    ]
    lanes[2][0] = Recv(Ranks(0), BlockRef(0, 2), 2, 0)
    before: dict[int, list[Action]] = {
        0: [UserWrite("src", 0, 0, bytes(range(6))), UserBarrier()],
        1: [UserBarrier()],
        2: [UserBarrier()],
    }
    _simulate([0, 0, 1], lanes, before, {2: [UserRead("dst", 2, 0, bytes([4, 5]))]})


def test_wrong_bytes_say_where() -> None:
    """The error names the place, the byte that was expected and the one that was found."""
    with pytest.raises(WrongBytesError, match=r"src@0\[0:4\].*1 of 4 .* 0x01, found 0x00"):
        _simulate([0], [[]], after={0: [UserRead("src", 0, 0, b"\0\1\0\0")]})


# --- users that break the rules ---------------------------------------------------------------
@EVERY_ENTRY
@pytest.mark.parametrize("sync", [("no", "no"), ("no", "my"), ("my", "no")], ids="-".join)
def test_users_without_the_right_race(entry: Entry, sync: Sync) -> None:
    """Strict modes allow less: what is right under ALLSYNC is a race under the others."""
    planner = Planner(Tree([0, 0, 1, 1, 2]))
    root = _root(entry, 5)
    allowed = Story(planner, 5 * 17, 2)
    for tight in (True, True, False):
        allowed.call(entry, root, 17, ("all", "all"), TUNINGS["large"][0], tight=tight)
    allowed.run()
    programs = planner.programs(entry, sync, TUNINGS["large"][0], root, 17)
    for script in allowed.scripts:
        for i, action in enumerate(script):
            if isinstance(action, Call):
                script[i] = Call(programs, action.operands)
    with pytest.raises(RaceError, match="user"):
        allowed.run()


@pytest.mark.parametrize("seed", [None, 1])
def test_at_once_the_first_finding_ends_the_simulation(seed: int | None) -> None:
    """Users race with each of some calls."""
    planner, entry, n = Planner(Tree([0, 0, 1, 1, 2])), find("broadcast", PULL), 17
    story, none = Story(planner, 5 * n, 2), ("no", "no")
    for tight in (True, True, False):
        story.call(entry, 1, n, ("all", "all"), TUNINGS["large"][0], tight=tight)
    programs = planner.programs(entry, none, TUNINGS["large"][0], 1, n)
    for script in story.scripts:
        script[:] = [Call(programs, x.operands) if isinstance(x, Call) else x for x in script]
    found = []
    for at_once in (False, True):
        with pytest.raises(RaceError) as error:
            story.run(seed, at_once=at_once)
        found.append(len(error.value.findings))
    assert 0 < found[1] < found[0]


def test_findings_are_not_too_many_to_read() -> None:
    """A long list is cut in the text, not in `findings`."""
    error = RaceError(*range(100))
    assert len(error.findings) == 100
    assert str(error).endswith("and 88 more")
