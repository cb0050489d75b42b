"""Records behave like frozen, slotted dataclasses."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from xupc.plan.steps import NetSignal, NetWait, Ranks, SetTicket, WaitTicket
from xupc.records import record, replace


class Base:
    """The common base of both classes."""

    __slots__ = ()

    def twice(self: Any) -> int:
        return 2 * self.x


@record
class Ours(Base):
    """A point."""

    x: int
    y: tuple[int, ...] = ()
    z: Any = None


Theirs: Any = dataclass(frozen=True, slots=True)(
    type("Ours", (Base,), {"__annotations__": {"x": int, "y": tuple, "z": Any}, "y": (), "z": None,
                           "__doc__": "A point."})
)  # fmt: skip


@pytest.mark.parametrize("arguments", [((1,), {}), ((1, (2,)), {"z": 3}), ((), {"y": (), "x": 4})])
def test_like_a_dataclass(arguments: Any) -> None:
    given, named = arguments
    ours, theirs = Ours(*given, **named), Theirs(*given, **named)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == Ours(*given, **named)
    assert ours != theirs
    assert ours.twice() == theirs.twice()
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours.__doc__ == "A point."
    for again in (pickle.loads(pickle.dumps(ours)), copy.copy(ours), copy.deepcopy(ours)):
        assert again == ours
    for change in (lambda: setattr(ours, "x", 1), lambda: delattr(ours, "x"),
                   lambda: setattr(ours, "w", 1)):  # fmt: skip
        with pytest.raises(AttributeError):
            change()
    assert not hasattr(ours, "__dict__")
    assert replace(ours, z=7) == Ours(ours.x, ours.y, 7)


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, 3, 4), {}), ((1,), {"w": 1})])
def test_wrong_arguments(arguments: Any) -> None:
    given, named = arguments
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError, match="argument"):
            kind(*given, **named)


def test_fields_are_not_inherited() -> None:
    with pytest.raises(TypeError, match="Further: a record cannot inherit fields"):
        record(type("Further", (Ours,), {"__annotations__": {"w": int}}))


def test_steps_of_two_kinds_differ() -> None:
    assert WaitTicket(1) != SetTicket(1)
    assert len({WaitTicket(1), SetTicket(1), WaitTicket(1)}) == 2
    assert NetSignal(0, Ranks(1), 2) == NetSignal(0, Ranks(1), 2) != NetWait(0, Ranks(1), 2)
    match WaitTicket(3):
        case WaitTicket(ticket):
            assert ticket == 3
