"""Detect failures of the whole job: deaths, hangs, interrupts, errors of MPI.

Every wait calls `FailureDetector.look` every 50 ms. A daemon thread looks four times a second, so
that a thread that only computes ends with the others. They check for

1. a free lock in the machine's control segment: its thread has died;
2. a trouble that a thread of this machine has published there: a death elsewhere, a hang, an
   interrupt, an error of MPI, calls that never meet;
3. on the machine's lowest thread, messages from other machines about deaths and troubles
   (`xupc.health.failure_tree`);
4. a launcher that has ended;
5. threads that wait for each other on different teams;
6. calls on `xupc.Comm` that differ, where MPI carries one (`xupc.health.crossed_calls`, between
   machines `xupc.health.calls_elsewhere`);
7. the deadline of the wait.

A thread that detects a failure raises; after that no call can be made. The end of a program with a
broken job never waits for a reply. It gives other threads a moment to print the same error, and
ends the job.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..backends.own_threads import GUARD, ReentrantEvent
from ..backends.wait import WaitState
from ..errors import (
    CollectiveMismatchError,
    DeadThreadError,
    HangError,
    XupcError,
    thread_name,
    warn_alone,
)
from ..topology.job_info import JobInfo
from .circles import circle_through
from .control_layout import BROKEN, CROSSED, DEAD, FINISHED, HUNG, INTERRUPTED
from .control_segment import Control
from .crossed_calls import CrossedCalls
from .hang_of_all import HANG_OF_ALL, HangOfAll, stuck_here
from .init_watchdog import AFTER_MPI_ERROR
from .job_abort import JobAbort
from .message_waits import MessageWaits, whole_world
from .stack_responder import StackResponder

if TYPE_CHECKING:
    from .calls_elsewhere import CallsElsewhere
    from .failure_tree import FailureTree
    from .thread_ranges import Ranges

__all__ = ["FailureDetector"]

SERVE = 4.0  # seconds for which threads serve one-sided accesses after the last one
TICK = 0.25  # seconds between two checks of the daemon thread
BUSY_TICK = 0.05  # seconds, while it waits for answers
CYCLE_AFTER = 1.0  # seconds of a wait before the search for threads that wait for each other
WARN_AFTER = 60.0  # seconds of a wait without a timeout
SPEAK = 1.0  # seconds from a death to the end of a thread that computes
LAST_WORD = 3.0  # seconds from a death to the end of a thread that has raised


class PythonThreads(Protocol):
    """The Python threads of this process that are inside calls."""

    @property
    def several(self) -> bool:
        """True if another Python thread than the calling one is inside a call."""


class WatchedJob(Protocol):
    """The part of the job that the failure detector uses."""

    info: JobInfo
    who: str
    timeout: float | None
    broken: BaseException | None

    @property
    def control(self) -> Control:
        """Control segment of the machine."""

    @property
    def lifeline(self) -> FailureTree | None:
        """Failure tree of the machines, on their lowest threads."""

    @property
    def teams(self) -> Sequence[object]:
        """All open teams but the world."""

    @property
    def pending(self) -> Sequence[object]:
        """Teams with posted calls that are not complete."""

    @property
    def callers(self) -> PythonThreads:
        """Python threads of this process that are inside calls."""

    def break_with(self, error: BaseException) -> None:
        """Mark the job as broken."""

    def serve(self, until: float) -> None:
        """Serve one-sided accesses of other nodes in the background until a time."""


class FailureDetector:
    """The failure detector of this thread."""

    def __init__(self, job: WatchedJob) -> None:
        self.job = job
        self.control = job.control
        self.lifeline = job.lifeline
        self.parent = os.getppid()
        self.ending = False
        self._suspected: tuple[tuple[tuple[int, int, int], ...], list[int]] | None = None
        self.asked = 0.0  # time of the last request for one-sided service
        self.inquiry = StackResponder(job)
        limit = WARN_AFTER if job.timeout is None else job.timeout
        messages = MessageWaits(limit, whole=whole_world(job.info.threads))
        self.crossed = CrossedCalls(job.control, self.inquiry.line, messages)
        self.hang_of_all = HangOfAll(job.control, job.info.threads)
        self.elsewhere: CallsElsewhere | None = None
        self.abort = JobAbort(job.info, job.control, job.lifeline)
        if self.lifeline is not None:
            self._listen(self.lifeline)
        self._stop = ReentrantEvent()
        self._thread = threading.Thread(target=self._watch_always, name=GUARD, daemon=True)
        self._thread.start()

    def _listen(self, lifeline: FailureTree) -> None:
        """Write what arrives from other machines to the control segment."""
        control = self.control
        lifeline.doing = lambda: control.doing(control.index)
        lifeline.received, lifeline.end = control.post, control.end_all
        lifeline.serve = control.note_request
        from .calls_elsewhere import CallsElsewhere  # a job on one machine never needs it

        self.elsewhere = CallsElsewhere(control, lifeline)
        for trouble, text in lifeline.news:
            control.post(trouble, text)

    # -- in a wait -----------------------------------------------------------------------
    def look(self, waiting: WaitState) -> None:
        """Check for failures; raise if there is one. Every wait calls this every 50 ms."""
        self._raise_troubles(waiting)
        waited = waiting.time.look()
        self.control.publish_wait(waiting, self._wait_text(waiting))
        if waited > CYCLE_AFTER and self.job.teams:
            self._look_for_cycle(waiting)
        timeout = self.job.timeout
        if timeout is not None and waited > timeout:
            self._raise_hang(self._hang_text(waiting, waited), waiting)
        if timeout is None and waited > WARN_AFTER and not waiting.warned:
            waiting.warned = True
            warn_alone(self._hang_text(waiting, waited))

    def _look_for_cycle(self, waiting: WaitState) -> None:
        """Raise HangError if threads of this machine wait for each other on different teams.

        Each thread publishes the threads that it waits for. A cycle counts if every thread in it
        has published the same wait twice since the cycle was first detected.
        """
        if waiting.place is None:
            return
        self.control.publish_awaited(*waiting.place, self._awaited(waiting))
        cycle = self._cycle()
        places = [self.control.awaited_by(i)[:3] for i in cycle]
        if len({team for _, team, _ in places}) == 1:  # one call, however slow, goes on
            cycle, places = [], []
        calls = tuple((i, *place[1:]) for i, place in zip(cycle, places, strict=True))
        if not cycle or self._suspected is None or self._suspected[0] != calls:
            self._suspected = (calls, [looks for looks, _, _ in places]) if cycle else None
            return
        first = self._suspected[1]
        if any(looks < seen + 2 for (looks, _, _), seen in zip(places, first, strict=True)):
            return
        names = [f"{self._name(i)} is {self.control.doing(i)}" for i in cycle]
        self._raise_hang(f"threads wait for each other: {'; '.join(names)}", waiting)

    def _raise_hang(self, text: str, waiting: WaitState) -> None:
        """Raise HangError, with the positions of all threads from before the error."""
        where = self.inquiry.report()
        self._raise_troubles(waiting)
        error = HangError(_lines(text, where))
        self.control.post(HUNG, text)
        self.job.break_with(error)
        raise error

    def _awaited(self, waiting: WaitState) -> list[int]:
        """Return the threads that this call waits for; those of this machine first."""
        instance = waiting.instance
        owner = None if instance is None else instance.owner
        # what is posted on other teams, or called by other Python threads, progresses here too, and
        # those threads may wait for it
        if any(team is not owner for team in self.job.pending) or self.job.callers.several:
            return []
        if instance is None:
            return sorted(waiting.threads, key=lambda t: (t not in self.job.info.machine, t))
        team, net = instance.owner, instance.net
        members = team.rank_tree.members(team.node_number)
        near = {team.threads[int(members[i])] for i in instance.awaited()}
        far = net.awaited(instance) if net is not None else set()
        return [*sorted(near), *sorted(far - near, key=lambda t: t not in self.job.info.machine)]

    def _cycle(self) -> list[int]:
        """Return a cycle of waiting threads with this one, by machine index; empty if none."""
        control, me = self.control, self.control.index
        of = {control.who(i)[1]: i for i in range(control.threads)}

        def awaited(i: int) -> list[int]:
            _, team, op, threads = control.awaited_by(i)
            waits = i == me or control.waits_in(i, team, op)
            return [of[t] for t in threads if t in of] if waits else []

        return circle_through(me, awaited)

    def _raise_troubles(self, waiting: WaitState) -> None:
        trouble = self.control.trouble()
        if trouble is None:
            dead = self.control.dead()
            if not dead:
                return
            trouble = DEAD, "; ".join(self.control.epitaph(i) for i in dead)
            self.control.post(*trouble)
        kind, text = trouble
        error: XupcError
        if kind == DEAD:
            error = DeadThreadError(text)
        elif kind == CROSSED:
            error = CollectiveMismatchError(text)
        elif kind == HUNG:
            mine = self._hang_text(waiting, waiting.time.look())
            mine = mine if self._missing(waiting) else f"{mine}; {text}"
            error = HangError(_lines(mine, self.inquiry.last_report()))
        else:
            error = XupcError(text)
        self.job.break_with(error)
        raise error

    def interrupted(self, what: str, error: BaseException) -> None:
        """Break the job after a foreign exception in a call: a part of a call is never resumed."""
        if self.job.broken is not None:
            return
        meant = isinstance(error, KeyboardInterrupt | SystemExit)
        by = "" if meant else f" by {type(error).__name__}"
        text = f"{self.job.who} was interrupted{by} inside {what}; the team is unusable"
        self.control.post(INTERRUPTED, text)
        self.job.break_with(XupcError(text))

    def mpi_failed(
        self, error: Exception, waiting: WaitState, what: str = "MPI failed"
    ) -> XupcError:
        """Return the error to raise for an error of MPI: the death that caused it, if any."""
        if known := self._behind(waiting):
            return known
        text = f"{self.job.who}: {what} in {waiting.name}: {error}"
        self.control.post(BROKEN, text)
        ours = XupcError(text)
        self.job.break_with(ours)
        return ours

    def mpi_refused(self, error: Exception, waiting: WaitState) -> XupcError:
        """Return the error to raise for an MPI error on all threads; the job stays usable."""
        if known := self._behind(waiting):
            return known
        teams = len(self.job.teams)
        return XupcError(
            f"{waiting.name}: MPI refuses ({teams} team{'s'[: teams != 1]} open here; "
            f"team.free() gives back what one takes): {error}"
        )

    def _behind(self, waiting: WaitState) -> XupcError | None:
        """Return the death or other trouble that caused an error of MPI, if any."""
        deadline = time.monotonic() + AFTER_MPI_ERROR
        try:
            while time.monotonic() < deadline:
                self._raise_troubles(waiting)
                time.sleep(0.02)
        except XupcError as known:
            return known
        return None

    # -- texts ---------------------------------------------------------------------------
    def _name(self, index: int) -> str:
        pid, thread, host = self.control.who(index)
        return thread_name(thread, host, pid)

    def _wait_text(self, waiting: WaitState) -> str:
        far = self._no_word(waiting)
        return f"{waiting.name}: no word from {', '.join(far)}" if far else waiting.name

    def _hang_text(self, waiting: WaitState, waited: float) -> str:
        text = f"{self.job.who} has waited {waited:.1f} s in {waiting.name}"
        missing = self._missing(waiting)
        return f"{text}; not there: {'; '.join(missing)}" if missing else text

    def _missing(self, waiting: WaitState) -> list[str]:
        """Return the threads that have not arrived at this wait, as far as known here."""
        control = self.control
        late = [i for i in range(control.threads) if i != control.index and self._late(i, waiting)]
        out = [f"{self._name(i)} is {control.doing(i)}" for i in late]
        out += [f"no word from {far}" for far in self._no_word(waiting)]
        if not out:  # the node root may have more information
            others = [i for i in range(control.threads) if i != control.index]
            texts = [(i, control.waits_for(i)) for i in others]
            out = [f"{self._name(i)} is in {t}" for i, t in texts if "no word from" in t]
        return out

    def _late(self, index: int, waiting: WaitState) -> bool:
        """Return whether this thread waits for a thread of its machine."""
        if waiting.instance is not None:
            team = waiting.instance.owner
            if self.control.team_of(index) != team.number:
                return self.control.who(index)[1] in team.threads
            return bool(self.control.operation_of(index) < waiting.instance.op)
        if waiting.agreement:
            return self.control.agreements_of(index) < waiting.agreement
        _, thread, _ = self.control.who(index)
        return thread in waiting.threads

    def _no_word(self, waiting: WaitState) -> list[str]:
        """Return the threads of other machines that this one waits for, by node."""
        info = self.job.info
        threads = set(waiting.threads)
        instance = waiting.instance
        if instance is not None and instance.net is not None:
            threads |= instance.net.awaited(instance)
        nodes = sorted({info.tree.node_of(t) for t in threads - set(info.machine)})
        return [self._node(node) for node in nodes]

    def _node(self, node: int) -> str:
        info = self.job.info
        members = info.tree.members(node)
        threads = f"thread{'s' if len(members) > 1 else ''} {', '.join(map(str, members[:16]))}"
        threads += ", ..." if len(members) > 16 else ""
        pid, first, host = self.control.host(info.machine_of(int(members[0])))
        whose = f", pid {pid}" if [first] == [int(t) for t in members] else ""
        return f"node {node} ({threads}; host {host}{whose})"

    # -- while this thread computes ------------------------------------------------------
    def _watch_always(self) -> None:
        """Check for failures in the daemon thread until `stop`."""
        launched = self.job.info.threads > 1
        since = 0.0
        while not self._stop.is_set():
            tick = BUSY_TICK if self.inquiry.busy or self.crossed.busy else TICK
            if self.lifeline is not None:
                self.lifeline.turn(tick)
            else:
                self._stop.wait(tick)
            if self._stop.is_set():
                break
            with contextlib.suppress(Exception):  # its errors must not stop the detection of deaths
                self.inquiry.turn()
            if launched and os.getppid() != self.parent:
                self.abort.end_now("the launcher of the job is gone", gone=True)
            if self.ending:
                if (trouble := self.control.trouble()) is not None and trouble[0] == CROSSED:
                    self._send_trouble()  # another thread of this machine may have found it
                continue
            if (status := self.control.ended) is not None:
                self.abort.end_with_others(status)
            for compare in (self._compare_elsewhere, self._compare_calls, self._find_hang_of_all):
                with contextlib.suppress(Exception):
                    compare()
            self._serve()
            if not (text := self._deaths()):
                continue
            now = time.monotonic()
            since = since or now
            if self.job.broken is None and now - since > SPEAK:
                self.abort.end_now(f"DeadThreadError: {text}")
            elif now - since > LAST_WORD:
                self.abort.end_now("")
        if self.lifeline is not None:
            self.lifeline.close()
        self.control.segment.close_fd()  # after the last barrier its locks are not needed

    def _compare_elsewhere(self) -> None:
        """Find calls that differ between machines where MPI carries one."""
        if self.elsewhere is not None and (text := self.elsewhere.turn()):
            self.control.post(CROSSED, text)

    def _compare_calls(self) -> None:
        """Find calls that differ where MPI carries one; end this thread if MPI holds it then.

        It ends, too, when its call has reached the limit of waits, or a wait elsewhere has.
        """
        if text := self.crossed.turn():
            self.control.post(CROSSED, text)
        self._send_trouble()  # this process may end here
        held = self.crossed.held
        if held is None:
            return
        trouble, (call, waited), timeout = self.control.trouble(), held, self.job.timeout
        if trouble is not None and trouble[0] == CROSSED:
            self.abort.end_now(f"MismatchError: {trouble[1]}")
        hung = trouble is not None and trouble[0] == HUNG
        message = self.crossed.awaits_message
        late = timeout is not None and waited > timeout and not message
        if hung or (trouble is None and late):
            text = f"{self.job.who} has waited {waited:.1f} s in {call}"
            text = f"{text}; {trouble[1]}" if trouble is not None and message else text
            where = self.inquiry.last_report() if hung else self.inquiry.report_for_others()
            self.control.post(HUNG, text)
            self._send_trouble()
            self.abort.end_now(f"HangError: {_lines(text, where)}")

    def _find_hang_of_all(self) -> None:
        """Find that all threads of the job wait in calls of MPI, so that none can send a message.

        With a limit all threads end then: each sees the trouble in `_compare_calls`. Without one
        the lowest thread warns.
        """
        if not self.hang_of_all.turn(self._stuck()):
            return
        report = self.inquiry.report_for_others()  # all threads print it
        if not self.hang_of_all.turn(self._stuck()):
            return
        if self.job.timeout is None:
            self.hang_of_all.warn(WARN_AFTER, report)
        else:
            self.control.post(HUNG, HANG_OF_ALL)
            self._compare_calls()

    def _stuck(self) -> Ranges:
        """Return the threads that are stuck: of this machine, and of those below it."""
        return stuck_here(self.control) if self.elsewhere is None else self.elsewhere.stuck

    def _send_trouble(self) -> None:
        """Send the trouble of this machine to the others."""
        trouble = self.control.trouble()
        if self.lifeline is not None and trouble is not None:
            self.lifeline.report(*trouble)

    def _serve(self) -> None:
        """Serve one-sided accesses for a while when threads make them, here or elsewhere.

        No new request is sent while one of another machine is fresh: all threads serve already.
        """
        asked, elsewhere = self.control.asked_to_serve
        latest = max(asked, elsewhere)
        if latest and self.job.info.spans_nodes:
            self.job.serve(latest + SERVE)
        if self.lifeline is not None and asked > max(elsewhere, self.asked) + SERVE / 4:
            self.asked = asked
            self.lifeline.ask_to_serve()

    def _deaths(self) -> str:
        """Return the deaths known on this machine as text; send troubles to other machines."""
        trouble = self.control.trouble()
        if trouble is None:
            dead = self.control.dead()
            if not dead:
                return ""
            trouble = DEAD, "; ".join(self.control.epitaph(i) for i in dead)
            self.control.post(*trouble)
        self._send_trouble()
        if trouble[0] in (DEAD, FINISHED):
            return trouble[1] if trouble[0] == DEAD else ""
        # another trouble: the thread that should end the job may have been killed before, here or
        # on another machine
        gone = [self.control.epitaph(i) for i in self.control.gone()]
        if self.lifeline is not None and self.lifeline.lost:
            gone.append(self.lifeline.lost)
        return "; ".join(gone)

    # -- the end -------------------------------------------------------------------------
    def finished(self) -> None:
        """Note that all threads have passed the last barrier: later ends are no deaths."""
        self.control.post(FINISHED)
        if self.lifeline is not None:
            self.lifeline.farewell()

    def stop(self, patience: float = 0.0) -> None:
        """Stop the detection; wait up to so many seconds for the end of the daemon thread."""
        self.inquiry.close()
        self._stop.set()
        if patience:
            self._thread.join(patience)

    def end_job(self, status: int, why: str, *, ours: bool) -> None:
        """End the job and this process; `ours`: other threads may raise the same error."""
        self.ending = True
        self.abort.end_job(status, why, ours=ours)


def _lines(text: str, where: str) -> str:
    return f"{text}\n{where}" if where else text
