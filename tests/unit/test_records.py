"""Records behave like frozen, slotted dataclasses."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from xupc import records
from xupc.plan.steps import NetSignal, NetWait, Ranks, SetTicket, WaitTicket
from xupc.records import mutable_record, record, replace


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


@record
class Further(Ours):
    """A record with a base, a default of its own, and a value that is computed once."""

    w: int = 5

    @cached_property
    def made(self) -> list[int]:
        """Return a new list."""
        return [self.x, self.w]


def test_fields_of_the_base_come_first() -> None:
    one = Further(1, (2,), w=6)
    assert repr(one) == "Further(x=1, y=(2,), z=None, w=6)"
    assert one.twice() == 2
    assert one == Further(1, (2,), None, 6) != Ours(1, (2,))
    assert Further(1).w == 5
    assert Ours(1) == Ours(1)  # its __init__ is not that of Further
    for again in (replace(one, x=3, w=7), pickle.loads(pickle.dumps(Further(3, (2,), None, 7)))):
        assert again == Further(3, (2,), None, 7)


def test_a_value_is_computed_once() -> None:
    one = Further(1)
    assert one.made is one.made
    assert one.made == [1, 5]
    assert one == Further(1)


@mutable_record
class Open:
    """A record that can change."""

    x: int
    y: Any = None

    def __post_init__(self) -> None:
        self.y = self.y or self.x


def test_a_mutable_record() -> None:
    one = Open(1)
    assert (one.x, one.y) == (1, 1)
    one.x = 2
    assert one == Open(2, 1) != Open(2)
    assert repr(one) == "Open(x=2, y=1)"
    assert copy.copy(one) == one
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(AttributeError):
        one.z = 1  # type: ignore[attr-defined]


def test_one_field_is_compared_by_identity_first() -> None:
    """A record compares as a tuple of its values does."""

    @record
    class One:
        x: Any

    x = float("nan")
    assert One(x) == One(x) != One(float("nan"))
    assert hash(One(x)) == hash((x,))


def test_a_method_of_the_class_stays() -> None:
    @record
    class Named:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "named"

    assert Named(1) == Named(2)
    assert (hash(Named(1)), repr(Named(1))) == (3, "named")


def test_a_class_compiles_nothing_until_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def noted(text: str, space: dict[str, Any]) -> None:
        compiled.append(text)
        exec(text, space)

    monkeypatch.setattr(records, "exec", noted, raising=False)

    @record
    class Late:
        x: int

    assert not compiled
    assert [Late(1).x, Late(2).x] == [1, 2]
    assert len(compiled) == 1


def test_steps_of_two_kinds_differ() -> None:
    assert WaitTicket(1) != SetTicket(1)
    assert len({WaitTicket(1), SetTicket(1), WaitTicket(1)}) == 2
    assert NetSignal(0, Ranks(1), 2) == NetSignal(0, Ranks(1), 2) != NetWait(0, Ranks(1), 2)
    match WaitTicket(3):
        case WaitTicket(ticket):
            assert ticket == 3
