"""Prove a variant of the user's program on one placement, before its first live run.

The variant is recorded for all threads and simulated on symbols in place of bytes
(`symbols.Symbols`): two calls in a row, with all accesses of the program around them that the sync
modes allow. A call under ALLSYNC is simulated under MYSYNC too, unless the variant is for ALLSYNC
alone. Whatever goes wrong refuses it: an exception, a race, a deadlock, a message without a
partner, a byte that is not what `CollectiveSpec` says, in the result or anywhere else.

The cost depends on the number of steps only, not on the bytes. It is limited by `MOST_STEPS` and
`MOST_THREADS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...algorithms.conditions import CallFacts
from ...algorithms.registry import Variant
from ...plan.plan import Plan
from ...plan.recorder import Operand, trace
from ...plan.steps import OP_SCRATCH_BYTES
from ...specs import SPECS, CollectiveSpec
from .errors import ProtocolError, SimulationError, WrongBytesError
from .script import Action, Call, UserBarrier, UserRead, UserWrite
from .sim_program import Program
from .simulator import Simulation
from .symbols import Alphabet, Symbols

__all__ = ["MOST_STEPS", "MOST_THREADS", "NotProvedError", "PROVABLE", "prove", "prove_call"]

MOST_STEPS: Final = 1 << 18
"""Of all threads together. A proof of so many takes some seconds."""
MOST_THREADS: Final = 512
GUARD: Final = 64
"""Bytes behind each operand that no step may change; before it there is nothing."""
SHOWN: Final = 3
"""Findings in a message."""
_SECOND: Final = " of the second call"
_ONLY_ALLSYNC: Final = (
    "a call under ALLSYNC needs a proof under MYSYNC too: correct `ready` and `done`, or register "
    "the variant with applies=lambda call: call.synchronised"
)

PROVABLE: Final = frozenset(
    name
    for base, spec in SPECS.items()
    if not spec.computes
    for name in (base, f"{base}_in_place", f"allav_{base}")
    if base != "broadcast_in_place" or name == base
)
"""The collectives whose oracle follows from their spec: those that move blocks."""


class NotProvedError(ValueError):
    """Report why a variant cannot be used here."""


@dataclass(frozen=True)
class Meaning:
    """What a collective does with blocks, from its spec and the arguments of an algorithm.

    Attributes
    ----------
    dst, src
        The operands of the results and of the sources.
    own_stays
        True if the root's own block is neither read nor written.
    shifted
        True if the block of thread i lies at place i of dst before the call.
    """

    spec: CollectiveSpec
    threads: int
    nbytes: int
    root: int
    perm: Sequence[int] | None
    dst: int
    src: int
    own_stays: bool
    shifted: bool

    @classmethod
    def of(cls, collective: str, call: CallFacts) -> Meaning:
        """Return the meaning of a call of a registered collective."""
        private = collective.startswith("allav_")
        name = collective.removeprefix("allav_")
        base = name if name in SPECS else name.removesuffix("_in_place")
        spec = SPECS[base]
        operands = [x.index for x in call.arguments if isinstance(x, Operand)]
        others = [x for x in call.arguments if not isinstance(x, Operand)]
        in_place = base != name or spec.one_buffer or (private and bool(others[-1]))
        if private:
            operands = [0] if in_place else [0, 1]
        rooted = bool(spec.root)
        return cls(
            spec, call.size, call.nbytes,
            others[0] if rooted else 0, others[0] if spec.permutes else None,
            operands[0], operands[-1],
            own_stays=in_place and rooted,
            shifted=in_place and not rooted and spec.src.blocks != spec.dst.blocks,
        )  # fmt: skip

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield (giver, taker) of each block that is written."""
        spec, each = self.spec, range(self.threads)
        if self.perm is not None:
            yield from ((i, int(self.perm[i])) for i in each)
            return
        for i in (self.root,) if spec.root == "src" else each:
            for j in (self.root,) if spec.root == "dst" else each:
                if not (self.own_stays and i == j == self.root):
                    yield i, j

    def source(self, giver: int, taker: int) -> int:
        """Return the place of a block in the giver's source, in bytes."""
        place = taker if self.spec.src.blocks == "T" else giver if self.shifted else 0
        return place * self.nbytes

    def result(self, giver: int, taker: int) -> int:
        """Return the place of a block in the taker's result, in bytes."""
        return (giver if self.spec.dst.blocks == "T" else 0) * self.nbytes

    def areas(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return (thread, offset) of all blocks that are read, and of all that are written."""
        sources = {(i, self.source(i, j)) for i, j in self.pairs()}
        results = {(j, self.result(i, j)) for i, j in self.pairs()}
        return sorted(sources), sorted(results)


@dataclass
class _Story:
    """Two calls in a row, with the accesses of the program that the sync modes allow.

    `right` below is whose data a thread touches between two calls: under ``"all"`` that of its
    neighbour, under ``"my"`` its own, under ``"no"`` none without a barrier.
    """

    meaning: Meaning
    programs: Sequence[Program]
    sync: tuple[str, str]
    staging: int
    alphabet: Alphabet = field(default_factory=Alphabet)
    calls: int = 0

    def __post_init__(self) -> None:
        m = self.meaning
        room = m.nbytes * m.threads + GUARD
        self.private = self.programs[0].plan.private
        self.memory = {
            name: [self.alphabet.fresh(room, f"thread {x}'s {name}") for x in range(m.threads)]
            for name in ("dst", "src", "dst" + _SECOND, "src" + _SECOND)
        }
        self.expected = {name: [x.copy() for x in each] for name, each in self.memory.items()}
        self.scripts: list[list[Action]] = [[] for _ in range(m.threads)]
        self.sources, self.results = m.areas()

    def run(self) -> None:
        """Simulate it; SimulationError if anything is wrong."""
        into, out = ("my", "my") if self.private else self.sync
        right = _both(out, into)
        self._call("", before=into)
        if right:  # the second call may use the same memory
            self._after(right, "")
            self._call("", before=right)
        else:
            self._after(out, "")
            self._overwrite(out, "")
            self._call(_SECOND, before=into)
        which = "" if right else _SECOND
        self._after(out, which)
        self._overwrite(out, which)
        self.barrier()
        self._check()
        Simulation(self.programs[0].tree, self._all_memory(), self.scripts).run()

    def barrier(self) -> None:
        """Add a barrier of the program's own."""
        for script in self.scripts:
            script.append(UserBarrier())

    def _all_memory(self) -> dict[str, list[Symbols]]:
        threads = range(self.meaning.threads)
        scratch = {f"op_scratch {k}": OP_SCRATCH_BYTES for k in range(self.calls)}
        rooms = {**scratch, "staging": self.staging}
        return {
            **self.memory,
            **{
                name: [self.alphabet.fresh(room, f"thread {x}'s {name}") for x in threads]
                for name, room in rooms.items()
            },
        }  # fmt: skip

    def _user(self, right: str, thread: int) -> list[Action]:
        """Return the script of the thread that touches a thread's data."""
        return self.scripts[(thread + 1) % self.meaning.threads if right == "all" else thread]

    def _call(self, which: str, *, before: str) -> None:
        """Add the program's writes before a call, the call, and what it does to memory."""
        self._overwrite(before, which)
        if before == "no" and not self.calls:
            self.barrier()
        operands = (
            ("dst" + which, 0), ("src" + which, 0),
            (f"op_scratch {self.calls}", 0), ("staging", 0),
        )  # fmt: skip
        call = Call(self.programs, operands)
        for script in self.scripts:
            script.append(call)
        self.calls += 1
        self._carry_out(which)

    def _overwrite(self, right: str, which: str) -> None:
        """Add writes to all blocks that a call reads or writes."""
        self._write(right, which, self.sources, self.meaning.src, "source")
        others = [x for x in self.results if not self._is_source(x)]
        self._write(right, which, others, self.meaning.dst, "old result")

    def _is_source(self, area: tuple[int, int]) -> bool:
        return self.meaning.src == self.meaning.dst and area in set(self.sources)

    def _array(self, operand: int, which: str) -> str:
        return ("src" if operand else "dst") + which

    def _write(
        self, right: str, which: str, areas: Sequence[tuple[int, int]], operand: int, what: str
    ) -> None:
        """Add writes of fresh values to blocks, if the program may make them."""
        n, array = self.meaning.nbytes, self._array(operand, which)
        if right == "no" and self.calls:
            return
        for thread, offset in areas:
            name = f"{what} block {offset // n} of thread {thread} (call {self.calls})"
            data = self.alphabet.fresh(n, name)
            self.expected[array][thread][offset : offset + n] = data
            self._user(right, thread).append(UserWrite(array, thread, offset, data))

    def _carry_out(self, which: str) -> None:
        """Do to the expected memory what the call does."""
        m, n = self.meaning, self.meaning.nbytes
        source, target = self._array(m.src, which), self._array(m.dst, which)
        before = [x.copy() for x in self.expected[source]]
        for i, j in m.pairs():
            of, to = m.source(i, j), m.result(i, j)
            self.expected[target][j][to : to + n] = before[i][of : of + n]

    def _after(self, right: str, which: str) -> None:
        """Add reads of the results."""
        if right == "no":
            return
        n, array = self.meaning.nbytes, self._array(self.meaning.dst, which)
        for thread, offset in self.results:
            data = self.expected[array][thread][offset : offset + n]
            self._user(right, thread).append(UserRead(array, thread, offset, data))

    def _check(self) -> None:
        """Add reads of all memory of the program."""
        for array, each in self.expected.items():
            for thread, data in enumerate(each):
                self.scripts[thread].append(UserRead(array, thread, 0, data.copy()))


def _both(out: str, into: str) -> str:
    """Return whose data a thread may touch between two calls on the same memory, "" if none may."""
    if out == "all" or into == "all" or out == into == "my":
        return "no" if "no" in (out, into) else "my" if "my" in (out, into) else "all"
    return ""


def prove(variant: Variant, call: CallFacts, *, private: bool = False) -> list[Plan]:
    """Return the plans of all threads of a call, proved also under MYSYNC in place of ALLSYNC.

    Under ALLSYNC barriers surround the call, so that a wrong `ready` or `done` changes nothing.
    A variant that can also run under MYSYNC must be right there, too.

    Raises
    ------
    NotProvedError
        Names the step, the threads and the bytes that are wrong.
    """
    plans = prove_call(variant, call, private=private)
    weaker = call.with_sync(*("my" if mode == "all" else mode for mode in call.sync))
    if not private and weaker.sync != call.sync and variant.can_run(weaker):
        try:
            prove_call(variant, weaker)
        except NotProvedError as e:
            raise NotProvedError(f"{e}\n{_ONLY_ALLSYNC}") from None
    return plans


def prove_call(variant: Variant, call: CallFacts, *, private: bool = False) -> list[Plan]:
    """Return the plans of all threads of a call, proved under its own sync modes alone.

    Raises
    ------
    NotProvedError
        Names the step, the threads and the bytes that are wrong.
    """
    if variant.collective not in PROVABLE:
        raise NotProvedError(f"{variant.name}: only collectives that move blocks can be proved")
    if call.size > MOST_THREADS:
        raise NotProvedError(
            f"{variant.name} cannot be proved: expected at most {MOST_THREADS} threads, "
            f"got {call.size}: use it on smaller teams"
        )
    try:
        plans = _plans(variant, call, private)
        programs = [Program(plan, call.tree) for plan in plans]
        meaning = Meaning.of(variant.collective, call)
        _Story(meaning, programs, call.sync, call.tuning["staging_bytes"]).run()
    except SimulationError as e:
        shown = "\n".join(str(finding) for finding in e.findings[:SHOWN])
        more = len(e.findings) - SHOWN
        also = f"\nand {more} more" if more > 0 else ""
        raise NotProvedError(
            f"{variant.name} is wrong on {call}: {_kind(e)}{shown}{also}"
        ) from None
    return plans


def _plans(variant: Variant, call: CallFacts, private: bool) -> list[Plan]:
    """Record the plans of all threads, as long as they are not too long."""
    plans, steps = [], 0
    for me in range(call.size):
        try:
            plan = trace(
                variant.function, variant.name, variant.collective, me, call.tree, call.sync,
                call.tuning, call.arguments, call.kernel, private=private,
            )  # fmt: skip
        except Exception as e:
            raise NotProvedError(
                f"{variant.name} raised {type(e).__name__} for thread {me} on {call}: {e}"
            ) from e
        plans.append(plan)
        steps += sum(map(len, plan.lanes))
        if steps > MOST_STEPS:
            raise NotProvedError(
                f"{variant.name} cannot be proved on {call}: expected at most {MOST_STEPS} steps "
                f"of all threads, got {steps} of the first {me + 1}: send longer messages"
            )
    return plans


def _kind(error: SimulationError) -> str:
    """Return what an error is about where its text does not begin with that."""
    match error:
        case WrongBytesError():
            return "wrong bytes: "
        case ProtocolError():
            return "impossible step: "
    return ""
