"""Teams as programs hold them; `xupc.runtime.team_state.TeamState` is the runtime's part.

A program that has no reference to a team any more has dropped it. The runtime has none to a `Team`,
so that no collector of garbage is needed to see that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from ..errors import show
from ..records import public_names
from ..runtime import current
from ..runtime.dropped_teams import Hold
from ..runtime.team_state import TeamState
from ..topology.levels import NodeLevels
from ..topology.parts import level_part
from ..topology.tree import ThreadTree, Tree
from .job_end import leave

__all__ = ["Team", "resolve", "state_of"]


class Team:
    """A group of threads that make calls together; `xupc.init` returns that of all threads.

    A team that all its threads have dropped without `free` is given back, with its memory. That
    is done by the next `split`, `all_alloc`, `all_free` or `free` in which all of them take part,
    at the latest by `finalize`. Dropped means: the thread has no reference to the team, its `node`
    and `roots`, an array or pointer in its memory, or a plan on it; its posted calls are over.
    Views, which are numpy's, stay readable but do not keep it. Reference cycles count as references
    until Python's collector finds them; `split` calls that when very many teams are open.

    Attributes
    ----------
    size, rank : int
        Number of threads and my place among them.
    threads : sequence of int
        Thread ids by rank.
    tree : Tree or ThreadTree
        Which of them share a node.
    """

    _makers: ClassVar[dict[str, Callable[..., Any]]] = {}  # of modules that import this one

    def __init__(self, state: TeamState, hold: Hold) -> None:
        self.state = state
        self._hold = hold
        self._parts: dict[str, Team | None] = {}
        state.handle = weakref.ref(self)

    @property
    def size(self) -> int:
        """Number of threads."""
        return self.state.size

    @property
    def rank(self) -> int:
        """My place among them."""
        return self.state.rank

    @property
    def threads(self) -> Sequence[int]:
        """Thread ids by rank."""
        return self.state.threads

    @property
    def tree(self) -> Tree | ThreadTree:
        """The node tree: which of its threads share a node."""
        return self.state.tree

    @property
    def node(self) -> Team:
        """The threads of my node. Costs nothing until it is used."""
        team = self._part("node")
        assert team is not None
        return team

    @property
    def roots(self) -> Team | None:
        """All node roots; None elsewhere. Costs nothing until it is used."""
        return self._part("roots")

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the levels of my node's threads, from the widest to the narrowest.

        The first is "node". Others are "socket", "numa", "l3" and "core", for example. There is one
        where threads are bound to processors and a domain of that kind holds several of them, but
        not the same ones as the level before. Nodes may differ.
        """
        return self._levels.names

    def level(self, name: str) -> Team:
        """Return the team of the threads in my domain of a level. Costs nothing until it is used.

        Parameters
        ----------
        name : str
            One of `levels`, or another kind of domain: "node", "socket", "die", "numa", "l3",
            "cluster", "l2" or "core". What nothing is known of stands for the next wider level.

        Raises
        ------
        TypeError, ValueError
            The name is none of these.
        """
        team = self._part(level_part(self._levels, name, roots=False))
        assert team is not None
        return team

    def level_roots(self, name: str) -> Team | None:
        """Return the team of the roots of all domains of a level inside my node.

        None on other threads. The root of a domain is its thread with the lowest rank. Costs
        nothing until it is used.

        Parameters
        ----------
        name : str
            As for `level`.
        """
        return self._part(level_part(self._levels, name, roots=True))

    @property
    def _levels(self) -> NodeLevels:
        return self.state.rank_tree.levels(self.state.node_number)

    def _part(self, name: str) -> Team | None:
        if name not in self._parts:
            part = self.state.part(name)
            self._parts[name] = None if part is None else Team(part, self._hold)
        return self._parts[name]

    @property
    def parent(self) -> Team | None:
        """The team that it is a part of, else that of all threads; None: it is that one."""
        parent = self.state.parent
        team: Team | None = None if parent is None else parent.public()
        return team

    def rank_of(self, thread: int) -> int | None:
        """Return the rank of a thread, None if it is not in the team."""
        return self.state.rank_of(thread)

    def split(self, color: int | None, key: int = 0) -> Team | None:
        """Split into disjoint teams; collective.

        Parameters
        ----------
        color : int or None
            Threads of one color form a team; None: in no team.
        key : int
            Their ranks in it go by key, then by their ranks here.

        Returns
        -------
        Team or None

        Raises
        ------
        HeapError
            On every thread of the new team, if memory, descriptors or mappings run out on one.
        XupcError
            If MPI has no more communicators.
        """
        state = self.state.split(color, key)
        return None if state is None else held(state)

    def neighbours(self, sources: Any, destinations: Any = None) -> Any:
        """Agree on the neighbours of all threads: `xupc.neighbours` on this team."""
        return self._makers["neighbours"](sources, destinations, team=self)

    def cartesian(self, dims: Any, periods: Any = False) -> Any:
        """Arrange the threads in a grid: `xupc.cartesian` on this team."""
        return self._makers["cartesian"](dims, periods, team=self)

    def free(self) -> None:
        """Give the team's memory back; collective. Views stay readable.

        Raises
        ------
        ValueError
            If it is the world team, or the `node` or `roots` of a team: those end with that team.
            If a call that the program has not waited for uses its memory.
        """
        self.state.free()

    def barrier(self, value: object = None) -> None:
        """Wait until all threads of the team are in the same barrier.

        The value and the errors are those of `xupc.barrier`.
        """
        self.state.barrier(value)

    def notify(self, value: object = None) -> None:
        """Arrive at a split-phase barrier, and go on: its first half."""
        self.state.notify(value)

    def wait(self, value: object = None) -> None:
        """Wait until all threads have notified: the second half of a split-phase barrier."""
        self.state.wait(value)

    def __dir__(self) -> list[str]:
        return public_names(self, "state", "rank_of")

    def __getattr__(self, name: str) -> Any:
        """Return what the runtime knows of the team, for xupc's own tools; not for programs."""
        if name == "state":
            raise AttributeError(name)
        return getattr(self.state, name)

    def __repr__(self) -> str:
        return repr(self.state)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Team cannot be pickled or copied: send its `threads`")

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if self.state.parent is None:
            leave(kind, value, traceback)
        elif kind is None and not self.state.freed:
            self.free()


def held(state: TeamState) -> Team:
    """Return the program's `Team` of a team that was opened now."""
    hold = Hold()
    state.held_by(hold)
    return Team(state, hold)


TeamState.make_handle = staticmethod(Team)


def state_of(team: Any) -> TeamState | None:
    """Return what the runtime keeps of a team; None if it is none."""
    return team.state if isinstance(team, Team) else None


def resolve(team: Any, call: str) -> tuple[TeamState, Exception | None]:
    """Return the team that a call is on, None meaning all threads, and what is wrong with it."""
    world = current.world()
    if team is None:
        return world, None
    state = state_of(team)
    if state is None:
        return world, TypeError(f"{call}: team: expected a Team, got {show(team)}")
    if state.job is not world.job:
        return world, ValueError(f"{call}: team: it is of an earlier init()")
    return state, None
