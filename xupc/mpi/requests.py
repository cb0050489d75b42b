"""The requests of the drop-in communicator: mpi4py's, which can be awaited.

A nonblocking collective that xupc carries is a generalized request of MPI
(`backends/native/mpi_requests.h`). MPI itself waits for it, alone or among other requests, so all
functions of mpi4py take it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from ..backends.native.native_core import core
from ..comm.place import place_in_mpi

if TYPE_CHECKING:
    import ctypes

__all__ = ["Prequest", "Request", "awaited", "returning_request", "usable"]

Run = Callable[..., Any]

_FUNCTIONS = (
    "MPI_Grequest_start", "MPI_Grequest_complete", "MPI_Status_set_elements",
    "MPI_Status_set_cancelled",
)  # fmt: skip
# In their progress MPICH calls what the first function was given, Open MPI what the second was.
_PROGRESS = (
    "MPIX_Async_start", "opal_progress_register", "opal_progress_unregister",
    "MPIX_Grequest_start",
)  # fmt: skip


class Request(MPI.Request):
    """A request of a collective, as `MPI.Request`; ``await request`` waits in a coroutine."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Any]:
        from ..api.handles import awaited as waited

        return (yield from waited(self.Test))


class Prequest(MPI.Prequest):
    """A persistent request of a collective, as `MPI.Prequest`; ``await request`` as `Request`."""

    __slots__ = ()

    __await__ = Request.__await__


class CarriedRequest(Request):
    """A request of a collective that xupc carries."""

    __slots__ = ()

    def Wait(self, status: MPI.Status | None = None) -> Any:  # noqa: N802
        """Wait for a non-blocking operation to complete."""
        return core.wait_for_request(self, MPI.Request.Wait, status)

    def wait(self, status: MPI.Status | None = None) -> Any:
        """Wait for a non-blocking operation to complete."""
        return core.wait_for_request(self, MPI.Request.wait, status)


_AWAITED = {MPI.Request: Request, MPI.Prequest: Prequest}


def awaited(request: Any) -> Any:
    """Return a request of mpi4py's as one that can be awaited."""
    if core is not None:
        return core.awaited_request(request)
    kind = _AWAITED.get(type(request))
    return request if kind is None else kind(request)


def returning_request(run: Run) -> Run:
    """Return a method of mpi4py's, but that its request can be awaited."""
    if core is not None:
        return functools.wraps(run)(core.ReturnsRequest(run))

    @functools.wraps(run)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return awaited(run(self, *arguments, **keywords))

    return method


@functools.cache
def usable() -> bool:
    """Return whether xupc can carry nonblocking calls: MPI has to make their progress."""
    if core is None:
        return False
    import ctypes

    try:
        library = ctypes.CDLL(MPI.__file__)
        needed = [_address(library, name) for name in _FUNCTIONS]
        progress = [_address(library, name) for name in _PROGRESS]
        handle = int(MPI._handleof(MPI.BYTE))
    except (OSError, AttributeError):
        return False
    mpich, add, remove, extended = progress
    by_mpich = mpich and extended and _is_known_mpich(MPI.Get_library_version())
    if not all(needed) or not (by_mpich or (add and remove)):
        return False
    request = CarriedRequest()
    at = MPI._addressof(request) - id(request)
    size = MPI._sizeof(MPI.Request)
    core.set_requests(
        (*needed, *progress), handle, size, MPI.ERR_REQUEST, CarriedRequest, at, _reported
    )
    return True


def _is_known_mpich(version: str) -> bool:
    """Return whether a library is an MPICH of which `mpi_requests.h` knows the constants."""
    return re.match(r"MPICH Version:\s*5\.", version) is not None


def _address(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a function; 0 if the library has none of this name."""
    import ctypes

    try:
        return ctypes.cast(library[name], ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _reported(error: BaseException) -> int:
    """Print an error in a call for which MPI waits, and return its number for MPI's error.

    mpi4py does so with errors in the functions of a generalized request.
    """
    from ..api.tracebacks import report_error

    report_error(error, *place_in_mpi(), at_end=True)
    return error.Get_error_code() if isinstance(error, MPI.Exception) else MPI.ERR_OTHER


if core is not None:
    core.set_awaited(_AWAITED)
