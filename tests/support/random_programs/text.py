"""A random program as Python that a user could run: ``mpiexec -n N python program.py``.

What it must find stands in it as checksums, by thread. The live tests run just this text.
"""

from __future__ import annotations

from typing import Any

from support.random_programs import oracle
from support.random_programs.program import (
    Alloc,
    Alone,
    At,
    Barrier,
    Call,
    Check,
    Fill,
    Free,
    FreeTeam,
    Invalid,
    ListedV,
    ListedX,
    Move,
    NodeArray,
    NodeBroadcast,
    Op,
    Program,
    Put,
    Reduce,
    Scalar,
    Split,
    Team,
    Values,
    Wait,
    flag_text,
)

HEAD = """\
# seed {seed}, on nodes {labels}: with tests in PYTHONPATH
# {nodes}mpiexec -n {threads} python program.py
import xupc
from support.random_programs.kit import *
world = xupc.init()
me = xupc.MYTHREAD
"""


def nodes_of(labels: tuple[int, ...]) -> str | None:
    """XUPC_NODES for a placement; None if it is one node, or is not among those that it can say."""
    count = len(set(labels))
    if count == 1:
        return None
    if list(labels) == [i % count for i in range(len(labels))]:
        return f"cyclic:{count}"
    sizes = [labels.count(node) for node in range(count)]
    if list(labels) == [node for node, size in enumerate(sizes) for _ in range(size)]:
        return ",".join(map(str, sizes))
    return None


def text(program: Program) -> str:
    """All of it; a program that is broken on purpose as far as it goes."""
    nodes = nodes_of(program.labels)
    head = HEAD.format(
        threads=program.threads, labels=program.labels, seed=program.seed,
        nodes=f"XUPC_NODES={nodes} " if nodes else "",
    )
    return head + body(program)


def body(program: Program, state: oracle.State | None = None) -> str:
    """Without the head."""
    state = state or oracle.State(program)
    writer = Writer(program, state)
    lines = []
    for op in program.ops:
        try:
            lines += writer.lines(op)
        except Invalid as problem:
            return "\n".join([*lines, f"# {problem}\n"])
    return "\n".join(lines) + "\n"


class Writer:
    """Writes operations; the oracle goes along."""

    def __init__(self, program: Program, state: oracle.State) -> None:
        self.program = program
        self.state = state
        self.later: dict[str, list[str]] = {}  # by handle: lines that check its results
        self.number = 0

    def lines(self, op: Op) -> list[str]:
        """An operation's."""
        self.number += 1
        arrays = dict(self.state.arrays)
        found = self.state.apply(op)
        self.arrays = {**arrays, **self.state.arrays}
        match op:
            case Alloc():
                dtype = "xupc.pointer_dtype" if op.dtype == "pointer" else repr(op.dtype)
                if op.by >= 0:
                    call = f"xupc.global_alloc({op.nelems}, {dtype}, {op.block})"
                    call = f"{call} if me == {op.by} else None"
                    return [f"{op.name} = xupc.allv_broadcast({call}, {op.by})", "xupc.barrier()"]
                call = f"{op.name} = xupc.all_alloc({op.nelems}, {dtype}, {op.block}"
                return self._for(op.team, f"{call}{_team(op.team)})")
            case Free() if arrays[op.name].by >= 0 and op.alone:
                free = f"if me == {arrays[op.name].by}: xupc.free({op.name})"
                return ["xupc.barrier()", free, "at.cache_clear()"]
            case Free():
                lines = [f"xupc.all_free({op.name})", "at.cache_clear()"]
                return self._for(arrays[op.name].team, *lines[: 1 + (arrays[op.name].by >= 0)])
            case Split():
                colors, keys = f"{op.colors}[here]", f"{op.keys}[here]"
                here = f"here = {op.parent.threads}.index(me)"
                team = _value(op.parent) if op.parent.name else "world"
                split = f"{op.name} = {team}.split({colors}, {keys})"
                return [f"{op.name} = None", *self._for(op.parent, here, split)]
            case FreeTeam():
                return [f"if {op.name}: {op.name}.free()", f"{op.name} = None"]
            case Fill() | Put() | Check():
                return self._access(op, found)
            case Barrier():
                if op.split:
                    return ["xupc.notify()", "xupc.wait()"]
                call = f"{_value(op.team)}.barrier()" if op.team.name else "xupc.barrier()"
                return self._for(op.team, call)
            case Wait():
                names = [n.rstrip("!") for order in op.orders for n in order]
                orders = tuple(" ".join(order) for order in op.orders)
                lines = [f"complete(handles, {orders}[me])"]
                for name in dict.fromkeys(names):
                    lines += self.later.pop(name, [])
                return lines
            case Values():
                return self._values(op, found)
            case Scalar():
                return self._scalar(op, found)
            case Alone():
                return self._alone(op, found)
            case NodeArray():
                team = _value(op.team) if op.team.name else "world"
                node = f"node_array({team}, {op.n}, {op.seed}, {found})"
                return self._for(op.team, node)
            case NodeBroadcast():
                root = op.team.threads[op.root]
                mine = f"some('bytes', 'u1', {op.n}, {op.seed}, me) if me == {root} else None"
                call = f"xupc.node_broadcast({mine}, {op.root}{_team(op.team)})"
                return self._for(op.team, f"same({call}, {found}[me])")
            case Call():
                return self._call(op)
        raise AssertionError(op)

    def _for(self, team: Team, *lines: str) -> list[str]:
        """Lines for a team's threads."""
        if len(team.threads) == self.program.threads:
            return list(lines)
        return [f"if me in {team.threads}:", *(f"    {line}" for line in lines)]

    def _access(self, op: Any, found: Any) -> list[str]:
        array = self.arrays[op.name]
        by = f", by={op.by}" if getattr(op, "by", 0) else ""
        if isinstance(op, Fill):
            kind = f", kind={op.kind!r}" if op.kind != "bytes" else ""
            return self._for(array.team, f"fill({op.name}, {op.seed}{kind}{by})")
        if isinstance(op, Put):
            values = ", ".join(
                self._at(v) if isinstance(v, At) else repr(v) for v in op.values
            )
            return self._for(array.team, f"put({op.name}, [{values}])")
        return self._for(array.team, f"check({op.name}, {found}{by})")

    # -- calls -----------------------------------------------------------------------------
    def _at(self, at: At | None) -> str:
        """A pointer; memoised, so that the same place is the same object."""
        if at is None:
            return "None"
        return f"at({at.array}, {self.arrays[at.array].index(at.thread, at.offset)})"

    def _operand(self, at: At, team: Team, odd: int) -> str:
        """A pointer, or now and then the array alone."""
        array = self.arrays[at.array]
        first = at.thread == team.threads[0] and at.offset == 0
        if odd % 2 and array.block and array.by < 0 and first:
            return at.array
        return self._at(at)

    def _call(self, op: Any) -> list[str]:
        function = f"xupc.all_{op.name}"
        arguments, keywords = self._arguments(op)
        if op.flags:
            keywords.append(f"flags=F({flag_text(op.flags)!r})")
        if op.team.name:
            keywords.append(f"team={_value(op.team)}")
        if isinstance(op, ListedX):
            function += "_x"
        elif isinstance(op, ListedV):
            function += "_v"
        given = ", ".join([*arguments, *keywords])
        return self._for(op.team, *self._run(op, function, given))

    def _run(self, op: Any, function: str, given: str) -> list[str]:
        """A call, or a plan and its run."""
        handle = f"handles[{op.handle!r}] = " if op.handle else ""
        if not op.plan:
            return [f"{handle}{function}({given})"]
        plan = f"plan{self.number}"
        return [
            f"{plan} = {function}.plan({given})",
            f"{handle}{plan}.start()" if op.handle else f"{plan}()",
        ]

    def _arguments(self, op: Any) -> tuple[list[str], list[str]]:
        match op:
            case Move():
                dst = self._operand(op.dst, op.team, op.nbytes)
                if op.name == "broadcast_in_place":
                    return [dst, str(op.nbytes)], []
                src = "None" if op.src is None else self._operand(op.src, op.team, op.nbytes)
                perm = [op.listed or str(op.perm)] if op.name == "permute" else []
                return [dst, src, *perm, str(op.nbytes)], []
            case Reduce():
                return self._reduction(op)
            case ListedX():
                return self._listed_x(op), []
            case ListedV():
                return self._listed_v(op)
        raise AssertionError(op)

    def _reduction(self, op: Reduce) -> tuple[list[str], list[str]]:
        dst = self._operand(op.dst, op.team, op.nelems)
        src = "None" if op.src is None else self._operand(op.src, op.team, op.nelems)
        keywords = [] if op.blk is None else [f"blk_size={op.blk}"]
        if op.func:
            keywords.append(f"func=func({op.func!r}, {self.arrays[op.dst.array].dtype!r})")
        return [dst, src, f"xupc.{op.op}", str(op.nelems)], keywords

    def _listed_x(self, op: ListedX) -> list[str]:
        shared = dict(op.shared)

        def places(name: str, given: tuple[At | None, ...]) -> str:
            return shared.get(name) or "[" + ", ".join(map(self._at, given)) + "]"

        single = op.name == "broadcast"
        src = self._at(op.src[0]) if single else places("src", op.src)
        perm = [shared.get("perm") or str(op.perm)] if op.name == "permute" else []
        sizes = str(op.nbytes[0]) if single else shared.get("nbytes") or str(list(op.nbytes))
        return [places("dst", op.dst), src, *perm, sizes]

    def _listed_v(self, op: ListedV) -> tuple[list[str], list[str]]:
        shared = dict(op.shared)

        def ints(name: str, given: tuple[int, ...]) -> str:
            return shared.get(name) or str(list(given))

        single = op.name == "broadcast"
        displacements = [ints("ddisp", op.ddisp)] + ([] if single else [ints("sdisp", op.sdisp)])
        perm = [shared.get("perm") or str(op.perm)] if op.name == "permute" else []
        sizes = str(op.nelems[0]) if single else ints("nelems", op.nelems)
        keywords = [
            f"{name}={value}"
            for name in ("dst_blk", "src_blk", "typesize")
            if (value := getattr(op, name)) is not None
        ]
        places = [self._at(op.dst), self._at(op.src)]
        return [*places, *perm, *displacements, sizes], keywords

    # -- private values --------------------------------------------------------------------
    def _values(self, op: Values, found: Any) -> list[str]:
        rank = f"{op.team.threads}.index(me)"
        n = self.number
        dst, src = f"d{n}", f"s{n}"
        first = f"{dst}, {src} = private({op.name!r}, {op.dtype!r}, {op.n}, {op.seed}, "
        first += f"{len(op.team.threads)}, {rank}, root={op.root}, in_place={op.in_place}, "
        first += f"step={op.step}, kind={op.kind!r})"
        arguments = [dst]
        if op.name != "broadcast":
            arguments.append("None" if op.in_place else src)
        call = self._run(op, f"xupc.allav_{op.name}", ", ".join([*arguments, *_choices(op)]))
        look = f"same({dst}, {found}[me])"
        if op.handle:
            self.later[op.handle] = self._for(op.team, look)
            return self._for(op.team, first, *call)
        return self._for(op.team, first, *call, look)

    def _scalar(self, op: Scalar, found: Any) -> list[str]:
        mine = f"scalars({op.kind!r}, {op.dtype!r}, {len(op.team.threads)}, {op.seed}, "
        mine += f"{op.team.threads}.index(me))"
        one = mine if op.name in ("scatter", "exchange") else f"{mine}[0]"
        call = f"xupc.allv_{op.name}({', '.join([one, *_choices(op)])})"
        return self._for(op.team, f"same({call}, {found}[me], {op.dtype!r})")

    def _alone(self, op: Alone, found: Any) -> list[str]:
        if op.name == "memput":
            call = f"xupc.memput({self._at(op.dst)}, some('bytes', 'u1', {op.nbytes}, {op.byte}), "
            call += f"{op.nbytes})"
        elif op.name == "memset":
            call = f"xupc.memset({self._at(op.dst)}, {op.byte}, {op.nbytes})"
        elif op.name == "memget":
            call = f"same(fetched({self._at(op.dst)}, {op.nbytes}), {found}[me])"
        else:
            assert op.src is not None
            call = f"xupc.{op.name}({self._at(op.dst)}, {self._at(op.src)}, {op.nbytes}"
            call += f"{_team(op.team)})"
        return [f"if me == {op.caller}: {call}"]


def _choices(op: Values | Scalar) -> list[str]:
    """The arguments that come after the data."""
    out = []
    if op.name == "permute":
        out.append(f"{op.perm}[{op.team.threads}.index(me)]")
    if op.op:
        out.append(f"xupc.{op.op}")
    if op.name in ("broadcast", "scatter", "gather", "reduce"):
        out.append(str(op.root))
    if isinstance(op, Values) and op.func:
        out.append(f"func=func({op.func!r}, {op.dtype!r})")
    out += [f"flags=F({flag_text(op.flags)!r})"] if op.flags else []
    out += [f"team={_value(op.team)}"] if op.team.name else []
    return out


def _team(team: Team) -> str:
    return f", team={_value(team)}" if team.name else ""


def _value(team: Team) -> str:
    return f"world.{team.name}" if team.name in ("node", "roots") else team.name
