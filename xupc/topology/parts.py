"""Which ranks form a predefined part of a team: its node, all node roots, a domain of a level."""

from __future__ import annotations

from ..errors import show
from .levels import NodeLevels
from .machine import NAMES
from .tree import Tree

__all__ = ["level_part", "ranks_of_part"]


def level_part(levels: NodeLevels, name: str, *, roots: bool) -> str:
    """Return the name of the part with a thread's domain of a level, or with the roots of it.

    All names of a level give the same part.

    Raises
    ------
    TypeError, ValueError
        If it is no name of a level.
    """
    if not isinstance(name, str) or name not in NAMES:
        call = "level_roots" if roots else "level"
        error = ValueError if isinstance(name, str) else TypeError
        raise error(f"{call}: name: expected one of {', '.join(NAMES)}, got {show(name)}")
    level = levels.find(name)
    if roots:
        return f"roots {level.name}"
    return "node" if level is levels.levels[0] else f"level {level.name}"


def ranks_of_part(tree: Tree, rank: int, name: str) -> list[int]:
    """Return the ranks of a part of a team.

    Parameters
    ----------
    tree : Tree
        Over the team's ranks.
    rank : int
        The thread whose part it is.
    name : str
        ``node``, ``roots``, or what `level_part` returned.
    """
    node = tree.node_of(rank)
    here = tree.members(node)
    kind, _, level_name = name.partition(" ")
    if level_name:
        level = tree.levels(node).find(level_name)
        mine = tree.local_index(rank)
        chosen = level.roots if kind == "roots" else level.domain(mine)
        return [int(here[i]) for i in chosen]
    return [int(each) for each in (tree.node_roots if kind == "roots" else here)]
