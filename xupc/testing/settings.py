"""Read what a test states about its job: threads, nodes and time limit."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

__all__ = ["FOLDER", "Setting", "runs_as_job", "setting_of"]

FOLDER = "XUPC_TEST_RANK_FOLDER"
"""The variable that is set in the threads of a job: the folder of the job's files."""

_THREADS = 2  # of a marker without a number, if --xupc-np gives none
_NAMES = {"np", "nodes", "timeout"}


class Setting(NamedTuple):
    """Hold what jobs must have in common to run the same tests.

    Attributes
    ----------
    threads
        The number of threads.
    nodes
        As of ``xupc run --nodes``; None for the machine as it is.
    timeout
        The time limit of a test, in seconds.
    """

    threads: int
    nodes: str | None
    timeout: float


def runs_as_job(item: pytest.Item) -> bool:
    """Return True if a test is marked, or if all tests are to run as jobs."""
    return item.config.option.xupc_np is not None or item.get_closest_marker("xupc") is not None


def setting_of(item: pytest.Item) -> Setting:
    """Return the job that a test asks for: by its marker, then by the command line.

    Raises
    ------
    pytest.UsageError
        If an argument of the marker or of the command line is wrong.
    """
    option = item.config.option
    marker = item.get_closest_marker("xupc")
    given = {} if marker is None else marker.kwargs
    if marker is not None and (marker.args or not given.keys() <= _NAMES):
        words = ", ".join([*map(repr, marker.args), *(f"{k}={v!r}" for k, v in given.items())])
        raise _error(item, "np=, nodes= and timeout= by keyword", f"xupc({words})")
    threads = given.get("np", option.xupc_np if option.xupc_np is not None else _THREADS)
    if isinstance(threads, (list, tuple)):
        threads = item.callspec.params["xupc_np"]  # type: ignore[attr-defined]
    nodes = given.get("nodes", option.xupc_nodes)
    timeout = given.get("timeout", option.xupc_timeout)
    if not _whole(threads) or threads < 1:
        raise _error(item, "np: a number of threads, 1 or more", repr(threads))
    if nodes is not None and not isinstance(nodes, str):
        raise _error(item, 'nodes: a string such as "2x2"', repr(nodes))
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise _error(item, "timeout: seconds, more than 0", repr(timeout))
    return Setting(threads, nodes, float(timeout))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _error(item: pytest.Item, expected: str, given: str) -> pytest.UsageError:
    return pytest.UsageError(f"{item.nodeid}: marker xupc: expected {expected}, got {given}")
