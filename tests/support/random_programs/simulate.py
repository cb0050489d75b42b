"""Random programs in the simulator: every schedule's races, deadlocks and bytes.

The shared space is one array, in which allocations lie behind each other with guards between them.
Private arrays are arrays of their own. Kernels are the library's; what is to come out is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from simulated.values import tuning_of
from support.random_programs.oracle import (
    Layout,
    State,
    blocks,
    given,
    other,
    part_of,
    values_after,
)
from support.random_programs.program import (
    EXCLUSIVE,
    IN_PLACE,
    REPRODUCIBLE,
    SCANS,
    Alloc,
    At,
    Barrier,
    Check,
    Fill,
    ListedV,
    ListedX,
    Move,
    Program,
    Reduce,
    Split,
    Team,
    Values,
    Wait,
    item,
    modes,
)
from support.random_programs.values import func

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.reduce_spec import Reduction
from xupc.algorithms.registry import Entry, Variant, find
from xupc.algorithms.scan_spec import ScanSpec
from xupc.algorithms.several_roots import label_of
from xupc.algorithms.transfer_lists import Transfers
from xupc.algorithms.values import transforms
from xupc.algorithms.values_reduce_spec import ReduceSpec
from xupc.backends.simulator import sim_program
from xupc.backends.simulator.script import (
    Action,
    Await,
    Call,
    Post,
    UserBarrier,
    UserRead,
    UserWrite,
)
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import ALGORITHM_MASK
from xupc.ops import Op
from xupc.pgas.layout import Layout as Dealt
from xupc.plan.recorder import Operand, trace
from xupc.plan.stripes import MOST_ROOTS
from xupc.reduction import kernels
from xupc.topology.tree import Tree

GUARD = 32
SLOTS = 64
OP_SCRATCH_BYTES = 1024
STAGING = 8192
_COLLECTIVE_IN_PLACE = ("gather_all", "exchange", "permute")


def run(program: Program, schedule: int | None = None) -> None:
    """Simulate it; an error says what is wrong."""
    Story(program).run(schedule)


class Story:
    """A program as scripts for the simulator."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.state = State(program)
        self.every = tuple(range(program.threads))
        self.tree = Tree(program.labels)
        self.tuning = tuning_of(program.tuning)
        self.scripts: list[list[Action]] = [[] for _ in self.every]
        self.start: dict[str, int] = {}
        self.end = GUARD
        self.memory: dict[str, list[bytearray]] = {}
        self.trees: dict[tuple[int, ...], Tree] = {self.every: self.tree}
        self.numbers: dict[tuple[int, ...], int] = {}
        self.later: dict[str, list[tuple[int, Action]]] = {}
        self.private = 0
        for op in program.ops:
            if isinstance(op, Alloc):
                self.start[op.name] = self.end
                most = max(op.part(x) for x in self.every)
                self.end += -(-most // 16) * 16 + GUARD
        self.memory["heap"] = [bytearray(self.end) for _ in self.every]
        for op in program.ops:
            self._add(op)

    def run(self, schedule: int | None) -> None:
        """All bytes, guards included, must be right in the end."""
        Simulation(self.tree, self.memory, self.scripts, schedule).run()
        for x in self.every:
            wanted = bytearray(self.end)
            for name, rows in self.state.memory.items():
                low = self.start[name]
                wanted[low : low + rows[x].size] = rows[x].tobytes()
            found = self.memory["heap"][x]
            if wanted != found:
                wrong = [i for i, pair in enumerate(zip(wanted, found, strict=True))
                         if pair[0] != pair[1]]  # fmt: skip
                raise AssertionError(f"heap@{x}: {len(wrong)} wrong bytes from {wrong[0]} on")

    # -- operations --------------------------------------------------------------------------
    def _add(self, op: Any) -> None:
        self.state.apply(op)
        match op:
            case Fill() | Check():
                self._user(op)
            case Barrier() | Alloc():  # which acts as one
                for script in self.scripts:
                    script.append(UserBarrier())
            case Wait():
                self._wait(op)
            case Values():
                self._values(op)
            case Move() | ListedX() | ListedV() | Reduce():
                self._make(op, *self._shared(op))
            case Split():
                pass
            case _:
                raise AssertionError(f"not for the simulator: {op}")

    def _user(self, op: Fill | Check) -> None:
        array = self.state.arrays[op.name]
        low = self.start[op.name]
        for part in part_of(array, writes=True):
            if part.hi == 0:
                continue
            data = self.state.memory[op.name][part.thread].tobytes()
            kind = UserWrite if isinstance(op, Fill) else UserRead
            who = other(array, part.thread, op.by)
            self.scripts[who].append(kind("heap", part.thread, low, data))

    def _wait(self, op: Wait) -> None:
        for thread, order in enumerate(op.orders):
            for name in order:
                self.scripts[thread].append(Await(name.rstrip("!")))
        for name in {n.rstrip("!") for order in op.orders for n in order}:
            for thread, action in self.later.pop(name, []):
                self.scripts[thread].append(action)

    def _make(
        self, op: Any, programs: list[sim_program.Program], operands: Any, kernel: Any
    ) -> None:
        """A call of its team's threads."""
        threads = op.team.threads
        team = None if threads == self.every else threads
        call = Call(programs, operands, kernel, team)
        for thread in threads:
            self.scripts[thread].append(Post(call, op.handle) if op.handle else call)

    def _sub(self, team: Team) -> Tree:
        if team.threads not in self.trees:
            self.trees[team.threads] = self.tree.sub(team.threads)
        return self.trees[team.threads]

    def _scratch(self, team: Team) -> tuple[tuple[str, int], tuple[str, int]]:
        """op_scratch and staging buffer of a team's next call."""
        number = self.numbers.get(team.threads, 0)
        self.numbers[team.threads] = number + 1
        slot, buffer = f"slot {team.threads}", f"buffer {team.threads}"
        if slot not in self.memory:
            self.memory[slot] = [bytearray(SLOTS * OP_SCRATCH_BYTES) for _ in self.every]
            self.memory[buffer] = [bytearray(STAGING) for _ in self.every]
        return (slot, number % SLOTS * OP_SCRATCH_BYTES), (buffer, 0)

    def _base(self, at: At | None) -> int:
        return 0 if at is None else self.start[at.array] + at.offset

    # -- calls on shared memory --------------------------------------------------------------
    def _shared(self, op: Any) -> tuple[list[sim_program.Program], Any, Any]:
        """Return the programs of all threads, the operands and the kernel."""
        scratch = self._scratch(op.team)
        bases = [0, 0]
        kernel = None
        tuning = self.tuning
        if isinstance(op, Reduce):
            name, arguments, kernel = self._reduction(op)
            bases = [self._base(op.dst), self._base(op.src or op.dst)]
        elif isinstance(op, Move):
            name, arguments = self._move(op)
            bases = [self._base(op.dst), self._base(op.src or op.dst)]
        else:
            name = f"{op.name}_{'x' if isinstance(op, ListedX) else 'v'}"
            arguments = [Operand(0), Operand(1), self._transfers(op)]
        if name.endswith("in_place"):
            tuning = {**tuning, "staging_bytes": tuning["scratch"]}
        programs = self._programs(op, name, arguments, tuning, kernel)
        # a kernel's plan has its slot third; one without has its buffer there, too
        third = scratch if kernel is not None else (scratch[1], scratch[1])
        return programs, (("heap", bases[0]), ("heap", bases[1]), *third), kernel

    def _programs(
        self, op: Any, name: str, arguments: list[Any], tuning: dict[str, int], kernel: Any,
        *, private: bool = False,
    ) -> list[sim_program.Program]:  # fmt: skip
        tree = self._sub(op.team)
        found = find(name, op.flags & ALGORITHM_MASK)
        entry: Entry | Variant = found
        sync = ("no", "no") if private else modes(op.flags)
        call = CallFacts(tree, tuning, sync, arguments, kernel)
        several = label_of("", 1 + len(repr(op)) % MOST_ROOTS)
        if several and found.can_run(several, call):
            entry = found.choose(several, call)
        return [
            sim_program.Program(
                trace(entry.function, entry.name, name, me, tree, sync, tuning, arguments, kernel,
                      private=private), tree,
            )
            for me in range(tree.size)
        ]  # fmt: skip

    def _move(self, op: Move) -> tuple[str, list[Any]]:
        threads, n = op.team.threads, op.nbytes
        name = op.name
        if name == "broadcast_in_place":
            assert op.src is not None
            return name, [Operand(0), Operand(0), threads.index(op.src.thread), n]
        if op.src is None:
            perm = [np.array(op.perm)] if op.perm else []
            return f"{name}_in_place", [Operand(0), *perm, n]
        rooted = {"broadcast": op.src, "scatter": op.src, "gather": op.dst}
        more: list[Any] = [np.array(op.perm)] if op.perm else []
        if name in rooted:
            more = [threads.index(rooted[name].thread)]
        name += "_in_place" if op.flags & IN_PLACE else ""
        return name, [Operand(0), Operand(1), *more, n]

    def _transfers(self, op: ListedX | ListedV) -> Transfers:
        threads = op.team.threads
        rows = [
            (threads.index(to.thread), self._base(to), threads.index(of.thread), self._base(of), n)
            for to, of, n in blocks(op, self.state.arrays)
        ]
        return Transfers.of(*np.array(rows, np.int64).reshape(-1, 5).T)

    def _reduction(self, op: Reduce) -> tuple[str, list[Any], Any]:
        arrays, threads = self.state.arrays, op.team.threads
        dtype = arrays[op.dst.array].dtype
        size = item(dtype)
        kernel = _kernel(dtype, op.op, op.func)

        def dealt(at: At) -> Dealt:
            x = Layout.of(arrays[at.array], at, op.blk, threads)
            return Dealt(len(threads), x.rank, x.phase, x.block, op.nelems)

        layout = dealt(op.src or op.dst)
        if op.name in SCANS:
            given = layout, dealt(op.dst), size, op.name == "suffix_reduce", op.src is None
            return _registered(op), [ScanSpec(*given, *_exclusive(op))], kernel
        element_wise = "mpi" in op.name
        each = min(layout.block, op.nelems) if element_wise else 1
        ordered = op.op == "NONCOMM_FUNC"
        exact = ordered or not element_wise or bool(op.flags & REPRODUCIBLE)
        to = None if op.name.endswith("all") else threads.index(op.dst.thread)
        return op.name, [Reduction(layout, each, size, to, ordered, exact, element_wise)], kernel

    # -- private arrays ------------------------------------------------------------------------
    def _values(self, op: Values) -> None:
        tree, threads = self._sub(op.team), op.team.threads
        size = item(op.dtype)
        nbytes = op.n * size
        flag = op.flags & ALGORITHM_MASK
        in_place = op.in_place
        copied = False
        if in_place and op.name != "broadcast":
            in_place = transforms(op.name, flag, tree, self.tuning, nbytes)
            copied = not in_place
        dst, src = f"dst {self.private}", f"src {self.private}"
        self.private += 1
        self._private_arrays(op, (dst, src), copied=copied)
        scratch = self._scratch(op.team)
        ordered = op.op == "NONCOMM_FUNC"
        kernel = _kernel(op.dtype, op.op, op.func) if op.op else None
        if kernel is not None:
            to = op.root if op.name == "reduce" else None
            exact = ordered or bool(op.flags & REPRODUCIBLE)
            arguments: list[Any] = [
                ReduceSpec(op.n, size, to, ordered, exact, in_place, *_exclusive(op))
            ]
        elif op.perm:
            arguments = [np.array(op.perm), nbytes, in_place]
        else:
            arguments = [op.root, nbytes, in_place]
        name = f"allav_{_registered(op)}"
        programs = self._programs(op, name, arguments, self.tuning, kernel, private=True)
        self._make(op, programs, ((dst, GUARD), (src, GUARD), *scratch), kernel)
        reads = []
        for rank, result in enumerate(values_after(op)):
            if result is not None:
                data = bytes(GUARD) + np.ascontiguousarray(result).tobytes() + bytes(GUARD)
                reads.append((threads[rank], UserRead(dst, threads[rank], 0, data)))
        if op.handle:
            self.later[op.handle] = list(reads)
            return
        for thread, read in reads:
            self.scripts[thread].append(read)

    def _private_arrays(self, op: Values, names: tuple[str, str], *, copied: bool) -> None:
        """They, with values in them; `copied`: src is what dst held."""
        for name in names:
            self.memory[name] = [bytearray() for _ in self.every]
        for rank, thread in enumerate(op.team.threads):
            held = list(given(op, rank))
            if copied:
                held[1] = held[0]
            for name, x in zip(names, held, strict=True):
                data = b"" if x is None else np.ascontiguousarray(x).tobytes()
                self.memory[name][thread] = bytearray(len(data) + 2 * GUARD)
                if data:
                    self.scripts[thread].append(UserWrite(name, thread, GUARD, data))


def _registered(op: Reduce | Values) -> str:
    """Return the name of its algorithms."""
    return f"exclusive_{op.name}" if op.flags & EXCLUSIVE else op.name


def _exclusive(op: Reduce | Values) -> tuple[bool, bool]:
    """Return whether a scan is exclusive, and whether its first result is the identity."""
    return bool(op.flags & EXCLUSIVE), not op.func


def _kernel(dtype: str, op: str, name: str) -> Any:
    return kernels.find(np.dtype(dtype), Op[op], func(name, dtype) if name else None, "simulated")
