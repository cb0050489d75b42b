"""What programs have called before and after each call."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..backends.interpreter import observed
from ..backends.native.native_core import core
from ..backends.protocol import Instance

__all__ = ["CallHooks", "HookedCall", "hooks"]


class HookedCall:
    """A call that a hook gets.

    Attributes
    ----------
    name
        The name of the collective.
    algorithm
        As in `plan.algorithm`; "barrier" of a barrier.
    nbytes
        The size of the call by which the selection table chooses.
    team
        The number of the team; 0 is the team of all threads.
    size, rank
        The number of its threads, and the rank of this one.
    operation
        The number of the call on its team, the same on all threads; 0 before it begins.
    seconds
        How long the call took; 0.0 before its end.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        plan, team = instance.plan, instance.owner
        self._record = instance.record  # another call may have the instance later
        self.name = self._record.name
        self.algorithm, self.nbytes = plan.algorithm, plan.nbytes
        self.team, self.size, self.rank = team.number, team.size, team.rank
        self.operation = 0
        self.seconds = 0.0
        self._began = time.perf_counter()

    def __repr__(self) -> str:
        return f"<{self.name} by {self.algorithm}, {self.nbytes} bytes>"

    @property
    def text(self) -> str:
        """Return the call with its arguments."""
        return self._record.call

    def end(self) -> None:
        """Note the end of the call."""
        self.seconds = time.perf_counter() - self._began
        self.operation = self._instance.op


Before = Callable[[HookedCall], object]
After = Callable[[HookedCall, "BaseException | None"], object]


class _Pair:
    """The functions of one `CallHooks.add`."""

    def __init__(self, owner: CallHooks, before: Before | None, after: After | None) -> None:
        self._owner = owner
        self.before, self.after = before, after

    def remove(self) -> None:
        """Call these functions no more."""
        self._owner.drop(self)

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class CallHooks:
    """Functions that are called before and after each call of this thread."""

    def __init__(self) -> None:
        self._pairs: tuple[_Pair, ...] = ()

    def add(self, before: Before | None = None, after: After | None = None) -> _Pair:
        """Have functions called before and after each collective of this thread.

        Parameters
        ----------
        before : callable, optional
            Called as ``before(call)`` when the arguments are checked and nothing has moved.
        after : callable, optional
            Called as ``after(call, error)``; `error` is None, or the exception of the call.

        Returns
        -------
        object
            Its ``remove()`` ends it; in a ``with``, so does the end of the block.

        Notes
        -----
        A posted call (ASYNC) begins when it is posted or taken from its queue, and ends when its
        handle is done; its hooks may run in a Python thread of xupc's own. Hooks must not make
        calls in which threads wait. What a hook raises comes out of the call; after an error of
        `before` this thread does not make it. Without hooks a call costs nothing more.
        """
        for name, function in (("before", before), ("after", after)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"hooks.add: {name}: expected a callable or None, got {type(function).__name__}"
                )
        pair = _Pair(self, before, after)
        self._set((*self._pairs, pair))
        return pair

    def drop(self, pair: _Pair) -> None:
        """Call a pair of functions no more."""
        self._set(tuple(each for each in self._pairs if each is not pair))

    def _set(self, pairs: tuple[_Pair, ...]) -> None:
        self._pairs = pairs
        both = (self.begin, self.end) if pairs else None
        observed.set_hooks(both)
        if core is not None:
            core.set_hooks(both)

    def begin(self, instance: Instance) -> HookedCall | None:
        """Call the functions before a call."""
        if not self._pairs:
            return None
        call = HookedCall(instance)
        for pair in self._pairs:
            if pair.before is not None:
                pair.before(call)
        return call

    def end(self, call: object, error: BaseException | None = None) -> None:
        """Call the functions after a call that `begin` has returned, in the opposite order."""
        if not isinstance(call, HookedCall):
            return
        call.end()
        for pair in reversed(self._pairs):
            if pair.after is not None:
                pair.after(call, error)


hooks = CallHooks()
