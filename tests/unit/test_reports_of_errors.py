"""An uncaught error is written in one piece: launchers merge what threads write, as it comes."""

from __future__ import annotations

import io
import sys

import pytest

from xupc.api import job_end


class Pieces(io.RawIOBase):
    """Keeps what is written to it, write by write."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.pieces.append(bytes(data))  # type: ignore[call-overload]
        return len(self.pieces[-1])


def pieces_of(report: BaseException, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    raw = Pieces()
    with monkeypatch.context() as patch:
        text = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
        patch.setattr(sys, "stderr", text)
        job_end._report(report)
    return raw.pieces


def error(depth: int) -> BaseException:
    def descend(left: int) -> None:
        if left:
            return descend(left - 1)
        raise ValueError("the last line\nand one more")

    try:
        descend(depth)
    except ValueError as e:
        return e
    raise AssertionError


@pytest.mark.parametrize("depth", [0, 200])
def test_one_piece(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (piece,) = pieces_of(error(depth), monkeypatch)
    assert piece.endswith(b"ValueError: the last line\nand one more\n")


@pytest.mark.parametrize(
    ("code", "words"), [(None, []), (3, []), ("no input", [b"no input\n"])], ids=str
)
def test_an_exit_is_no_error(
    code: object, words: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pieces_of(SystemExit(code), monkeypatch) == words
