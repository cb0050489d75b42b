"""What the choice among variants may depend on, and the conditions that several variants have.

A condition is a function of `CallFacts`. The first line of its docstring says it in words: error
messages and `xupc algorithms` show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ..plan.placement import Facts

if TYPE_CHECKING:
    from ..topology.tree import Tree

__all__ = [
    "CallFacts", "Condition", "Conditions", "by_name", "fused", "led", "on_one_node",
    "on_several_nodes", "text_of",
]  # fmt: skip


class CallFacts(Facts):
    """Describe a call, as far as it is the same on all threads.

    Attributes
    ----------
    sync
        ``(in, out)``: each of ``"no"``, ``"my"``, ``"all"``.
    arguments
        The arguments of the algorithm.
    nbytes
        The bytes of a block: what one thread contributes or receives from another one.
    """

    def __init__(
        self, tree: Tree, tuning: Mapping[str, int], sync: tuple[str, str],
        arguments: Sequence[Any], kernel: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(tree, tuning, kernel)
        self.sync = sync
        self.arguments = arguments
        self.nbytes = _block_bytes(arguments)

    def with_sync(self, into: str, out: str) -> CallFacts:
        """Return the same call under other sync modes."""
        return CallFacts(self.tree, self.tuning, (into, out), self.arguments, self.kernel)

    @property
    def synchronised(self) -> bool:
        """Return whether all threads wait for all others before the call and after it."""
        return self.sync == ("all", "all")

    def __str__(self) -> str:
        nodes, threads = self.tree.node_count, self.size
        words = [f"{nodes} node{'s'[: nodes != 1]}", f"{threads} thread{'s'[: threads != 1]}"]
        modes = f"IN_{self.sync[0].upper()}SYNC OUT_{self.sync[1].upper()}SYNC"
        return ", ".join([*words, f"blocks of {self.nbytes} bytes", modes])


def _block_bytes(arguments: Sequence[Any]) -> int:
    """Return the bytes of a block, which the arguments of every algorithm say."""
    match arguments:
        case [*_, int() as nbytes, bool()] | [*_, int() as nbytes]:
            return nbytes
        case [*_, moves] if hasattr(moves, "total"):  # blocks of different sizes
            return int(moves.nbytes.max(initial=0))
        case [spec]:
            return int(spec.block_bytes if hasattr(spec, "block_bytes") else spec.nbytes)
    raise TypeError(f"arguments of an algorithm without a number of bytes: {arguments}")


Condition = Callable[[CallFacts], bool]
Amount = Callable[[CallFacts], int]


class Conditions(TypedDict):
    """The two conditions of a variant: where it can run, and where it is the default."""

    applies: Condition
    preferred: Condition


def text_of(condition: Condition | None) -> str:
    """Return a condition in words: the first line of its docstring, without the full stop."""
    if condition is None:
        return ""
    text = str(condition.__doc__ or getattr(condition, "__name__", "a condition"))
    return text.splitlines()[0].strip().rstrip(".")


def on_one_node(call: CallFacts) -> bool:
    """One node."""
    return call.one_node


def by_name(_call: CallFacts) -> bool:
    """Nowhere: used where a call or a table names it."""
    return False


def on_several_nodes(call: CallFacts) -> bool:
    """Several nodes."""
    return not call.one_node


def fused(total: Amount) -> Conditions:
    """Return the conditions of a call that one thread carries out, of so many bytes in all."""

    def preferred(call: CallFacts) -> bool:
        """At most `fused_max` bytes in all."""
        return total(call) <= call.tuning["fused_max"]

    return {"applies": on_one_node, "preferred": preferred}


def led(
    crossing: Amount, *, one_block: bool = False, staged: bool = False, most: str = ""
) -> Conditions:
    """Return the conditions of a call that node roots carry out alone.

    Parameters
    ----------
    crossing
        The bytes per node.
    one_block
        Only one block crosses.
    staged
        The bytes pass through a staging buffer.
    most
        The size of the tuning table that no block is longer than by default.
    """

    def applies(call: CallFacts) -> bool:
        """Few nodes, ALLSYNC both ways, at most so many bytes per node as a barrier can carry."""
        nbytes = crossing(call)
        room = not staged or nbytes <= call.tuning["staging_bytes"]
        return room and call.synchronised and call.roots_can_move(nbytes)

    def preferred(call: CallFacts) -> bool:
        short = not most or call.nbytes <= call.tuning[most]
        return short and call.roots_should_move(crossing(call), one_block=one_block)

    limit = "root_exchange_max_one_block" if one_block else "root_exchange_max"
    also = f", blocks of at most `{most}`" if most else ""
    preferred.__doc__ = f"At most `{limit}` bytes per node{also}."
    return {"applies": applies, "preferred": preferred}
