"""The collectives that `xupc bench --api mpi4py` measures, by methods of `xupc.Comm`."""

from __future__ import annotations

from collections.abc import Sequence

from ..mpi.methods import TAKEN
from ..mpi.methods import names as methods_that_are
from ..specs import mpi_name, parse_name
from .oracle import COLLECTIVES
from .settings import Settings, named

__all__ = ["DROP_IN", "METHODS", "USUAL", "XUPC", "chosen", "method_of"]

XUPC, DROP_IN = "xupc", "mpi4py"
"""The programming interfaces through which calls are measured."""

USUAL = (
    "all_broadcast", "all_scatter", "all_gather", "all_gather_all", "all_exchange",
    "all_reduce_mpi_all", "barrier",
)  # fmt: skip
"""The collectives that are measured where none is named."""
_USUAL_METHODS = "Bcast", "Scatter", "Gather", "Allgather", "Alltoall", "Allreduce", "Barrier"


def method_of(collective: str) -> str:
    """Return the method of `xupc.Comm` that does the work of a call; "" if there is none."""
    if collective == "barrier":
        return "Barrier"
    form, _ = parse_name(collective)
    name = mpi_name(collective) if form in ("allav", "allav_v") else ""
    if form == "allv":  # Python objects
        name = mpi_name(collective).lower()
    return name if name in methods_that_are(TAKEN) else ""


METHODS = {method: name for name in COLLECTIVES if (method := method_of(name))}
"""The methods that can be measured, and the collective of each."""


def chosen(settings: Settings, api: str, words: Sequence[str]) -> Settings:
    """Return settings that measure the named collectives through an interface.

    Parameters
    ----------
    settings
        All other settings; their collectives are kept where none is named.
    api : str
        `XUPC` or `DROP_IN`. For the latter a name may be a method: ``bcast`` is the one on
        objects.
    words : sequence of str
        Names, MPI's names, or patterns.

    Raises
    ------
    ValueError
        If there is no such collective, or the interface lacks it or another setting.
    """
    if api == XUPC:
        return settings.but(collectives=named(words)) if words else settings
    default = Settings()
    for option, differs in {
        "--flags": settings.algorithms != default.algorithms,
        "--sync": settings.syncs != default.syncs,
        "--plan": settings.plan,
    }.items():
        if differs:
            raise ValueError(
                f"{option}: xupc.Comm has no such choice: leave out this option or --api"
            )
    found: list[str] = []
    for word in words or _USUAL_METHODS:
        found += [METHODS[word]] if word in METHODS else named([word])
    if lacking := [name for name in found if not method_of(name)]:
        raise ValueError(
            f"{', '.join(lacking)}: no method of xupc.Comm; --api {DROP_IN} measures "
            f"{', '.join(METHODS)}"
        )
    unique = tuple(dict.fromkeys(found))
    return settings.but(api=DROP_IN, algorithms=("auto",), collectives=unique)
