"""Tracebacks end at the program's line."""

from __future__ import annotations

import functools
import re
import runpy
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest

import xupc
from xupc.api import tracebacks
from xupc.api.tracebacks import traceback_text
from xupc.backends.native.native_core import core
from xupc.errors import OWN, warn
from xupc.pgas.shape import as_shape


def caught(call: Any) -> BaseException:
    try:
        call()
    except BaseException as e:
        return e
    raise AssertionError("no error")


def test_frames_of_xupc_are_left_out() -> None:
    """The last line of code is that of the caller; with the variable all are there."""
    error = caught(lambda: as_shape((3, -1), "all_alloc"))
    text = traceback_text(error)
    assert "shape.py" not in text
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.splitlines()[-1] == f"ValueError: {error}"
    assert 'as_shape((3, -1), "all_alloc")' in text
    assert "shape.py" in "".join(traceback.format_exception(error))


@pytest.mark.skipif(core is None, reason="no native core")
def test_frames_of_the_core_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cython names its files relative to the checkout, not to the working directory."""
    monkeypatch.chdir(tmp_path)
    error = caught(lambda: xupc.allav_reduce_all(1, 2, xupc.ADD))
    assert isinstance(error, xupc.XupcError)
    assert "backends/native/_" in "".join(traceback.format_exception(error))
    assert "_core.pyx" not in traceback_text(error)


def test_all_frames_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XUPC_TRACEBACK", "full")
    error = caught(lambda: as_shape((3, -1), "all_alloc"))
    assert traceback_text(error) == "".join(traceback.format_exception(error))


def test_an_error_at_the_end_of_the_program_has_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of the program made the call; an error of another kind may be a fault of xupc."""

    def call() -> None:
        raise xupc.CollectiveMismatchError("the threads differ")

    error = caught(call)
    assert traceback_text(error, at_end=True) == (
        "xupc.errors.CollectiveMismatchError: the threads differ\n"
    )
    other = caught(own("{}['odd']"))
    assert f"{OWN}x.py" in traceback_text(other, at_end=True)
    monkeypatch.setenv("XUPC_TRACEBACK", "full")
    assert "in call" in traceback_text(error, at_end=True)


def test_causes_are_shortened_too() -> None:
    """Of errors that another one was raised from, or while it was handled."""

    def call() -> None:
        try:
            as_shape((), "f")
        except ValueError as e:
            raise xupc.HeapError("outer") from e

    text = traceback_text(caught(call))
    assert "direct cause" in text
    assert "shape.py" not in text


def test_a_cause_that_says_the_same_is_left_out() -> None:
    """The drop-in communicator raises errors of its own classes from those of xupc."""
    error, inner = caught(lambda: as_shape((), "f")), caught(lambda: as_shape((), "f"))
    assert inner.__traceback__ is not None
    inner.__traceback__ = inner.__traceback__.tb_next and inner.__traceback__.tb_next.tb_next
    error.__cause__ = inner
    assert traceback_text(error).count("ValueError") == 1
    error.__cause__ = inner.with_traceback(None)
    assert traceback_text(error).count("ValueError") == 1
    error.__cause__ = ValueError("another one")
    assert traceback_text(error).count("ValueError") == 2
    error.__cause__ = caught(lambda: as_shape((), "f"))
    assert traceback_text(error).count("ValueError") == 2, "it has a line of the program"


def test_other_errors_that_xupc_raises_keep_all_frames() -> None:
    """They may be a fault of xupc, which its report must show."""
    error = caught(own("{}['odd']"))
    assert isinstance(error, KeyError)
    assert f"{OWN}x.py" in traceback_text(error)


def test_an_error_of_code_that_xupc_calls_has_no_frames_of_xupc() -> None:
    error = caught(lambda: as_shape([Odd()], "f"))
    assert isinstance(error, KeyError)
    text = traceback_text(error)
    assert "shape.py" not in text
    assert "in __index__" in text


def test_each_error_of_a_chain_is_judged_by_itself() -> None:
    """An error of the program while it handled one of a call; a fault while one was handled."""

    def fails() -> None:
        try:
            as_shape((), "f")
        except ValueError:
            raise KeyError("odd") from None

    def handled() -> None:
        try:
            as_shape((), "f")
        except ValueError:
            own("{}['odd']")()

    error = caught(fails)
    error.__suppress_context__ = False
    assert "shape.py" not in traceback_text(error)
    text = traceback_text(caught(handled))
    assert "shape.py" not in text
    assert f"{OWN}x.py" in text


def test_an_interrupt_has_no_frames_of_xupc() -> None:
    text = traceback_text(caught(own("raise KeyboardInterrupt")))
    assert text.splitlines()[-1] == "KeyboardInterrupt"
    assert f"{OWN}x.py" not in text
    assert "in caught" in text


def test_errors_of_a_group_are_shortened() -> None:
    one = caught(lambda: as_shape((), "f"))
    text = traceback_text(caught(lambda: through_xupc(raise_group, one)))
    assert "shape.py" not in text
    assert f"{OWN}x.py" not in text
    assert str(one) in text


def raise_group(one: Exception) -> None:
    raise ExceptionGroup("two", [one, ValueError("another")])


def test_frames_that_start_a_program_are_left_out(tmp_path: Path) -> None:
    """Of any error; one in the syntax of the program has no frame then."""
    (tmp_path / "raises.py").write_text("def f():\n    {}['x']\nf()\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    for name, frames in (("raises", ["<module>", "f"]), ("wrong", [])):
        file = str(tmp_path / f"{name}.py")
        error = caught(functools.partial(runpy.run_path, file, run_name="__main__"))
        while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        text = traceback_text(error)
        assert re.findall(r", in (.*)", text) == frames, text
        assert "runpy" not in text
        assert text.startswith("Traceback") == bool(frames), text
    assert text.splitlines()[-1].startswith("SyntaxError"), text


class Odd:
    """An index that raises another error than those about arguments."""

    def __index__(self) -> int:
        raise KeyError("odd")


def test_an_error_inside_xupc_alone_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would be left of a command's own error."""
    monkeypatch.setattr(tracebacks, "OWN", "/")
    error = caught(lambda: as_shape((), "f"))
    assert traceback_text(error) == "".join(traceback.format_exception(error))


def own(line: str) -> Any:
    """Return a function of one line that counts as one of xupc."""
    names: dict[str, Any] = {}
    exec(compile(f"def own(*given):\n    {line}", f"{OWN}x.py", "exec"), names)
    return names["own"]


def through_xupc(call: Any, *arguments: Any) -> Any:
    """Call something from a frame that counts as one of xupc."""
    return own("return given[0](*given[1:])")(call, *arguments)


@pytest.mark.parametrize("kind", [RuntimeWarning, DeprecationWarning])
def test_a_warning_has_the_line_of_the_program(kind: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        through_xupc(through_xupc, warn, "beware", kind)
    (one,) = found
    assert (str(one.message), one.category, one.filename) == ("beware", kind, __file__)
    assert "return own(" in Path(__file__).read_text().splitlines()[one.lineno - 1]


def test_a_warning_without_a_line_of_a_program_shows_none_of_xupc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xupc.errors.OWN", "")  # all files count as those of xupc
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn("beware")
    (one,) = found
    shown = warnings.formatwarning(one.message, one.category, one.filename, one.lineno)
    assert shown == "xupc:0: RuntimeWarning: beware\n"
