"""Record the calls of a job for `xupc trace`: connect its threads to the files of `call_trace`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..backends.native.native_core import core
from ..backends.protocol import Instance
from ..call_trace.layout import ANYONE, THREAD, folder_of
from ..call_trace.part import Part
from ..comm.clock_offset import clock_offset
from ..comm.team_comm import TeamComm
from ..errors import warn
from ..health.stack_report import is_internal
from ..topology.host import constant_counter
from ..topology.job_info import JobInfo
from ..topology.tree import Tree

__all__ = ["Recorder", "TRACE", "carried_elsewhere"]

TRACE = "XUPC_TRACE"

carried_elsewhere: list[Callable[[], Iterable[tuple[str, str, int]]]] = []
"""Return (name, reason, calls) of those that xupc could have carried and another library has."""


class RecordedTeam(Protocol):
    """The part of a team that a trace names."""

    number: int
    threads: Sequence[int]
    rank_tree: Tree
    node_number: int


class Recorder:
    """The recorder of this thread; it writes to a file of its own."""

    def __init__(self, target: Path, part: Part) -> None:
        self.target = target
        self.part = part
        self.native = False

    # -- start and end -------------------------------------------------------------------
    @classmethod
    def open(cls, link: TeamComm, target: str) -> Recorder:
        """Open the files of a trace that thread 0's ``XUPC_TRACE`` names; collective.

        Raises
        ------
        ValueError
            A file cannot be made on some thread; on every thread.
        """
        path, why = link.comm.bcast(_checked(target) if link.rank == 0 else None)
        part = None
        if not why:
            try:
                folder = folder_of(Path(path))
                folder.mkdir(exist_ok=True)
                part = Part(folder, link.rank)
            except OSError as e:
                why = f"{e.strerror} ({e.filename or folder})"
        first = np.array([link.rank if why else link.size], np.int64)
        found = np.empty_like(first)
        link.comm.Allreduce(first, found, link.mpi.MIN)
        if (root := int(found[0])) < link.size:
            if part is not None:
                part.close()
            why = link.comm.bcast(why, root=root)
            raise ValueError(
                f"init: {TRACE}: expected a file that can be written, got {path!r}: {why} "
                f"(thread {root})"
            )
        assert part is not None
        return cls(Path(path), part)

    def start(self, info: JobInfo, link: TeamComm, host: str) -> None:
        """Describe this thread, and record the calls of all teams that are made from now on."""
        self.native = info.native
        self.part.say({
            "thread": info.me, "threads": info.threads, "node": info.node, "host": host,
            "pid": os.getpid(), "offset": self._offset(info, link), "at": time.monotonic_ns(),
        })  # fmt: skip
        if info.native:
            core.start_trace(*self.part.addresses, constant_counter(), self.kind_of, self._line_of)

    @staticmethod
    def _offset(info: JobInfo, link: TeamComm) -> int:
        return clock_offset(link, info.machine) if info.machines > 1 else 0

    def describe(self, team: RecordedTeam) -> None:
        """Write which threads a team has."""
        members = team.rank_tree.members(team.node_number).tolist()
        threads = None if team.number == 0 else [int(thread) for thread in team.threads]
        self.part.say({
            "team": team.number, "threads": threads,
            "members": [int(team.threads[rank]) for rank in members],
        })  # fmt: skip
        self._say_elsewhere()

    def _say_elsewhere(self) -> None:
        """Write which calls are not in the trace: the last such line of a part is the one."""
        if calls := [call for count in carried_elsewhere for call in count()]:
            self.part.say({"elsewhere": calls})

    def stop(self, info: JobInfo, link: TeamComm) -> None:
        """Record nothing more; all threads do this before thread 0 joins their parts."""
        self.part.say({"clock": self._offset(info, link), "at": time.monotonic_ns()})
        self._say_elsewhere()
        if self.native:
            core.stop_trace()

    def close(self) -> None:
        """Close the files of this thread; no call is recorded any more."""
        if self.native:
            core.end_trace()
        self.part.close()

    def join(self) -> None:
        """Join the parts of all threads, on thread 0."""
        from ..call_trace.file import join_parts  # it needs some time, and only this thread it

        folder = folder_of(self.target)
        try:
            trace = join_parts(self.target)
        except (OSError, ValueError) as e:
            warn(f"finalize: {TRACE}: the parts in {folder} are not joined: {e}")
            return
        if trace.missing:
            warn(
                f"finalize: {TRACE}: {self.target} lacks {len(trace.missing)} threads, whose files "
                f"are in {folder} of other hosts: copy them into one folder, then run "
                f"xupc trace {folder} -o {self.target} --force"
            )

    # -- numbers of texts ------------------------------------------------------------------
    def kind_of(self, instance: Instance) -> int:
        """Return the number of a call's kind."""
        plan, team = instance.plan, instance.owner.number
        name = instance.record.name
        variant = "" if plan.collective == "barrier" else plan.algorithm
        return self.part.kinds.of(
            (name, variant, plan.nbytes, team),
            {"name": name, "variant": variant, "nbytes": plan.nbytes, "team": team},
        )

    def _line_of(self, frame: FrameType) -> int:
        """Return the number of the line that a frame is at, -1 for a line of xupc's own."""
        if is_internal(frame):
            return -1
        code = frame.f_code
        file, line = code.co_filename, frame.f_lineno
        return self.part.lines.of(
            (file, line, code.co_name),
            {"file": _near(file), "number": line, "function": code.co_name},
        )

    # -- calls of the Python engine ----------------------------------------------------------
    def begin(self, instance: Instance) -> NDArray[np.void]:
        """Return the row of a call that begins."""
        frame: FrameType | None = sys._getframe(1)
        line = -1
        while frame is not None and (line := self._line_of(frame)) < 0:
            frame = frame.f_back
        return self.part.begin(instance.op, self.kind_of(instance), max(line, 0))

    def waited(self, row: NDArray[np.void], since: int, threads: Sequence[int]) -> None:
        """Note a wait of a call that ends now."""
        self.part.waited(row, since, THREAD | threads[0] if threads else ANYONE)

    def see(self) -> int:
        """Note that this thread waits; return the time."""
        return self.part.see()

    def end(self, row: NDArray[np.void]) -> None:
        """Keep the row of a call that has ended."""
        self.part.end(row)


def _near(file: str) -> str:
    """Return a path below the working directory as a relative one."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _checked(text: str) -> tuple[str, str]:
    """Return the path of a file, and what is wrong with it.

    A file that exists and parts of an earlier trace are removed.
    """
    path = Path(text).absolute()
    if path.exists() and not path.is_file():
        return str(path), "it exists, and is no file"
    if not path.parent.is_dir():
        return str(path), f"there is no directory {path.parent}"
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return str(path), "it cannot be written"
    folder = folder_of(path)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return str(path), f"{folder}, which is for its parts, is no directory"
    shutil.rmtree(folder, ignore_errors=True)
    path.unlink(missing_ok=True)
    return str(path), ""
