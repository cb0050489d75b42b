"""Records: small classes made from their annotations, in a fraction of the time of `dataclasses`.

A start of xupc makes some eighty of them and uses a part. `dataclasses.dataclass` compiles the text
of five methods as it makes a class. A record compiles its `__init__` when it is first called; the
other methods need no text of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

__all__ = ["mutable_record", "public_names", "record", "replace"]

_T = TypeVar("_T")
_REMADE = {"__dict__", "__weakref__"}  # what a class gets anew


@dataclass_transform(frozen_default=True)
def record(cls: type[_T]) -> type[_T]:
    """Make a class an immutable record of its annotated names, like a frozen, slotted dataclass.

    Equality and hash are those of the values, among records of one class. A default is the same
    object for all. `__post_init__` is called at the end if there is one, and a `cached_property`
    works. The fields of a base that is a record come first.
    """
    values = _values(_names(cls))

    def hashed(self: Any) -> int:
        return hash(values(self))

    return _made(
        cls, values, "_set(self, {0!r}, {0})",
        __setattr__=_refuse, __delattr__=_refuse, __hash__=hashed,
    )  # fmt: skip


@dataclass_transform()
def mutable_record(cls: type[_T]) -> type[_T]:
    """Make a class a record whose fields can change, like a slotted dataclass: it has no hash."""
    return _made(cls, _values(_names(cls)), "self.{0} = {0}", __hash__=None)


def replace(found: _T, **changes: Any) -> _T:
    """Return a record with other values of some fields, as `dataclasses.replace` does."""
    kind: Any = type(found)
    new: _T = kind(**{**{n: getattr(found, n) for n in kind.__match_args__}, **changes})
    return new


def public_names(x: object, *internal: str, only: frozenset[str] | None = None) -> list[str]:
    """Return what `dir` shows of an object: its public names, and Python's own.

    Parameters
    ----------
    internal
        Names of the library's own that have no underscore.
    only
        All public names, where the rest is the library's own.
    """
    names = (n for n in object.__dir__(x) if n not in internal)
    return sorted(
        n for n in names if n[:2] == "__" or (n[0] != "_" and (only is None or n in only))
    )


def _names(cls: type) -> tuple[str, ...]:
    """Return the names of all fields, those of the base first."""
    inherited: tuple[str, ...] = getattr(cls, "__match_args__", ())
    return *inherited, *(name for name in cls.__annotations__ if name not in inherited)


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of a record."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _made(
    cls: type[_T],
    values: Callable[[Any], tuple[Any, ...]],
    assignment: str,
    **methods: Any,
) -> type[_T]:
    """Return the class again with slots and methods; a method that it defines itself stays."""

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__ = _compiled_init(kind, assignment)
        kind.__init__(self, *args, **kwargs)

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    slots, defaults, own = _parted(cls)
    made = {"__init__": first_init, "__eq__": equal, "__repr__": _repr, "__reduce__": _reduce,
            **methods, **own, "__match_args__": _names(cls), "__slots__": slots,
            "_record_defaults": {**getattr(cls, "_record_defaults", {}), **defaults}}  # fmt: skip
    meta: Any = type(cls)
    kind = meta(cls.__name__, cls.__bases__, made)
    kind.__qualname__ = cls.__qualname__
    new: type[_T] = kind
    return new


def _parted(cls: type) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]:
    """Return what a class is made of: its slots, the defaults of its fields, all else."""
    inherited, fields = getattr(cls, "__match_args__", ()), cls.__annotations__
    own = {name: value for name, value in vars(cls).items() if name not in _REMADE}
    defaults = {name: own.pop(name) for name in fields if name in own}
    slots = [name for name in fields if name not in inherited]
    if any(isinstance(value, cached_property) for value in own.values()):
        slots.append("__dict__")
    return tuple(slots), defaults, own


def _compiled_init(kind: Any, assignment: str) -> Callable[..., None]:
    """Return the `__init__` of a record: the assignments of its fields."""
    names, defaults = kind.__match_args__, kind._record_defaults
    parameters = [f"{name}=_defaults[{name!r}]" if name in defaults else name for name in names]
    lines = [f"def __init__({', '.join(['self', *parameters])}):"]
    lines += [f" {assignment.format(name)}" for name in names]
    lines.append(" self.__post_init__()" if hasattr(kind, "__post_init__") else " return None")
    space: dict[str, Any] = {"_set": object.__setattr__, "_defaults": defaults}
    exec("\n".join(lines), space)
    init: Callable[..., None] = space["__init__"]
    return init


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name}: a record cannot be changed")


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)
