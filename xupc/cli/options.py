"""Options that several commands take, and their values, as click's callbacks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from xupc.bench.columns import aligned
from xupc.bench.oracle import COLLECTIVES
from xupc.bench.settings import SYNCS, Shape, algorithm_named, sizes_between
from xupc.byte_sizes import size_of
from xupc.pgas.allocation import dtype_of
from xupc.report.plans import Unplanned, check_block
from xupc.specs import mpi_name, parse_name
from xupc.topology.node_spec import threads_of_nodes

from ..topology import host
from .common import check_nodes

__all__ = [
    "algorithms", "block", "chosen", "collectives", "dtypes", "list_option", "numbers",
    "placements", "root", "seconds", "shapes", "size_argument", "size_given", "sizes", "syncs",
]  # fmt: skip

# Nine digits at most: more is no number of threads or seconds, and int() refuses thousands of them.
_NUMBER = re.compile("[0-9]{1,9}")
_TIME = re.compile(
    r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s?)?", re.ASCII
)
OSU_TYPES = {"mpi_char": "int8", "mpi_int": "int32", "mpi_float": "float32"}
"""The names of types in OSU's benchmarks, and numpy's."""


def sizes(_context: Any, _option: Any, value: str | None) -> tuple[int, ...] | None:
    """Parse ``MIN:MAX`` or ``MAX``, powers of two; or a list with commas."""
    if value is None:
        return None
    try:
        if "," in value:
            found = tuple(dict.fromkeys(size_of(word) for word in value.split(",")))
            sizes_between(min(found), max(found))
            return found
        low, _, high = value.rpartition(":")
        return sizes_between(size_of(low) if low else 1, size_of(high))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def block(text: str) -> int:
    """Return the bytes of a block of a call that is described; BadParameter if there is none."""
    try:
        found = size_of(text)
        check_block(found)
    except (ValueError, Unplanned) as error:
        raise click.BadParameter(str(error)) from None
    return found


def numbers(_context: Any, _option: Any, value: str | None) -> tuple[int, ...] | None:
    """Parse numbers like ``2,4,8``."""
    if value is None:
        return None
    words = value.split(",")
    if not all(_NUMBER.fullmatch(word) and int(word) for word in words):
        raise click.BadParameter(f"{value!r}: expected numbers of threads like 2,4,8")
    return tuple(dict.fromkeys(int(word) for word in words))


def seconds(_context: Any, _option: Any, value: str | None) -> float | None:
    """Parse a time like ``90``, ``10m`` or ``1h30m``, in seconds."""
    if value is None:
        return None
    found = _TIME.fullmatch(value.strip())
    hours, minutes, seconds = found.groups() if found else (None, None, None)
    total = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)
    if not total:
        raise click.BadParameter(f"{value!r}: expected a time like 90, 10m or 1h30m")
    return total


def chosen(names: Sequence[str]) -> Callable[..., Any]:
    """Parse a list with commas of some of these names."""

    def check(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = [word.strip() for word in value.split(",")]
        found = [next((n for n in names if n.lower() == w.lower()), "") for w in given]
        if "" in found:
            wrong = given[found.index("")]
            raise click.BadParameter(f"{wrong!r}: expected some of {', '.join(names)}")
        return tuple(dict.fromkeys(found))

    return check


def algorithms(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
    """Parse algorithms like ``auto,MULTICORE,multicore:ring``."""
    if value is None:
        return None
    try:
        return tuple(dict.fromkeys(algorithm_named(word.strip()) for word in value.split(",")))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def syncs(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
    """Parse sync modes like ``allsync,mysync`` or ``nosync/allsync``: before and after."""
    if value is None:
        return None
    words = value.lower().split(",")
    for word in words:
        if not all(part in SYNCS for part in word.split("/")) or word.count("/") > 1:
            raise click.BadParameter(
                f"{word!r}: expected {', '.join(SYNCS)} or two of them like nosync/allsync"
            )
    return tuple(dict.fromkeys(words))


def dtypes(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
    """Parse types like ``float64,int32``; also the names of OSU, where ``all`` is every one."""
    if value is None:
        return None
    found = []
    for word in (",".join(OSU_TYPES) if value == "all" else value).split(","):
        try:
            dtype = dtype_of(OSU_TYPES.get(word.strip().lower(), word.strip()), "--type")
        except TypeError:
            raise click.BadParameter(f"{word!r} is no numpy type") from None
        if dtype.kind not in "biufc":
            raise click.BadParameter(f"{word!r}: expected a type of numbers")
        found.append(dtype.name)
    return tuple(dict.fromkeys(found))


def root(_context: Any, _option: Any, value: str) -> str:
    """Check a root like ``3``, ``last`` or ``rotate``; also OSU's ``fixed:3``."""
    value = value.removeprefix("fixed:")
    if value in ("last", "rotate") or _NUMBER.fullmatch(value):
        return value
    raise click.BadParameter(f"{value!r}: expected a thread's number, last or rotate")


def collectives(*, nargs: int = -1, names: Sequence[str] = COLLECTIVES) -> Callable[..., Any]:
    """Return the argument that names collectives, which a shell can complete."""

    def complete(_context: Any, _option: Any, begin: str) -> list[str]:
        known = [*names, *dict.fromkeys(filter(None, map(mpi_name, names)))]
        return [name for name in known if name.startswith(begin)]

    if nargs == 1:
        return click.argument("collective", required=False, shell_complete=complete)
    return click.argument(
        "collectives", nargs=nargs, metavar="[COLLECTIVE]...", shell_complete=complete
    )


def size_argument(callback: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return the argument ``given``: a size after the collective, in place of ``--size``."""
    return click.argument("given", metavar="[SIZE]", required=False, callback=callback)


def size_given(given: Any, option: Any, name: str) -> Any:
    """Return the size of the argument if there is one, else that of ``--size``.

    `name`: the parameter of ``--size``.

    Raises
    ------
    UsageError
        The command line has both.
    """
    source = click.get_current_context().get_parameter_source(name)
    if given is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("expected one size, got the argument SIZE and --size")
    return option if given is None else given


def list_option(names: Sequence[str] = COLLECTIVES) -> Callable[..., Any]:
    """Return the option that lists collectives, with MPI's names and what each does."""

    def show(context: click.Context, _option: Any, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            rows = [
                ["collective", "MPI", ""],
                *([n, mpi_name(n) or "-", _summary(n)] for n in names),
            ]
            click.echo("\n".join(aligned(rows)))
            context.exit()

    return click.option(
        "--list", is_flag=True, expose_value=False, is_eager=True, callback=show,
        help="List the names of all collectives and MPI's names for them, and exit.",
    )  # fmt: skip


def _summary(name: str) -> str:
    if name == "barrier":
        return "Wait for all threads."
    form, spec = parse_name(name)
    return spec.summary[form].partition(" (")[0].rstrip(".:")


def placements(command: Any) -> Any:
    """Add the options of the jobs to launch: threads and nodes."""
    threads = click.option(
        "-n", "-np", "threads", callback=numbers, metavar="N[,N...]",
        help="Threads, one job each; by default as many as the nodes hold, or the available cores.",
    )  # fmt: skip
    nodes = click.option(
        "--nodes", multiple=True, metavar="SPEC", envvar="XUPC_NODES",
        help="Split this machine into nodes, as `xupc run` does; several: one job each.",
    )  # fmt: skip
    return threads(nodes(command))


def shapes(threads: Sequence[int] | None, nodes: Sequence[str]) -> tuple[Shape, ...]:
    """Return every number of threads on every split of the machine; UsageError if one cannot be."""
    specs: Sequence[str | None] = nodes or (None,)
    if threads is None:
        usual = [threads_of_nodes(spec or "") or host.available_cores() for spec in specs]
        found = [Shape(count, spec) for count, spec in zip(usual, specs, strict=True)]
    else:
        found = [Shape(count, spec) for count in threads for spec in specs]
    for shape in found:
        check_nodes(shape.nodes, shape.threads)
    return tuple({shape.placed: shape for shape in reversed(found)}.values())[::-1]


def split_words(text: str, option: str) -> tuple[str, ...]:
    """Split a shell's command line into its arguments; BadParameter if it is none."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
