"""Immutable records, made in a sixth of the time that `dataclasses.dataclass` takes.

A start of xupc makes dozens of them. `dataclass(frozen=True, slots=True)` compiles each method by
itself, which was a third of the time to import the library; here one compilation makes all.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar, dataclass_transform

__all__ = ["public_names", "record", "replace"]

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def record(cls: type[_T]) -> type[_T]:
    """Make a class an immutable record of its annotated names, like a frozen, slotted dataclass.

    Equality and hash are those of the values, among records of one class. A default is the same
    object for all. Records do not inherit fields.
    """
    if any(getattr(base, "__match_args__", ()) for base in cls.__bases__):
        raise TypeError(f"{cls.__name__}: a record cannot inherit fields; use a dataclass")
    names = tuple(cls.__annotations__)
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    kept = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in defaults and name not in ("__dict__", "__weakref__")
    }
    made = {
        "__slots__": names, "__match_args__": names, "__setattr__": _refuse,
        "__delattr__": _refuse, "__repr__": _repr, "__reduce__": _reduce,
        **_methods(names, defaults),
    }  # fmt: skip
    kind: Any = type(cls)
    new: type[_T] = kind(cls.__name__, cls.__bases__, {**made, **kept, "__slots__": names})
    new.__qualname__ = cls.__qualname__
    return new


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


def _methods(names: tuple[str, ...], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return `__init__`, `__eq__` and `__hash__`."""
    parameters = [f"{name}=_defaults[{name!r}]" if name in defaults else name for name in names]
    mine, theirs = ("".join(f"{x}.{name}," for name in names) for x in ("self", "other"))
    lines = [
        f"def __init__({', '.join(['self', *parameters])}):",
        *(f" _set(self, {name!r}, {name})" for name in names),
        " return None",
        "def __eq__(self, other):",
        f" return ({mine}) == ({theirs}) if other.__class__ is self.__class__ else NotImplemented",
        "def __hash__(self):",
        f" return hash(({mine}))",
    ]
    space: dict[str, Any] = {"_set": object.__setattr__, "_defaults": defaults}
    exec("\n".join(lines), space)
    return {name: space[name] for name in ("__init__", "__eq__", "__hash__")}


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name}: a record cannot be changed")


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)
