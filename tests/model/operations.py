"""The operations of the model checker's threads, and their orders: see `checker`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

RELAXED, ACQUIRE, RELEASE, SEQ_CST = range(4)
LOAD, STORE, ADD, SWAP, WAIT, WAKE, READ, WRITE, MEET, MARK_, AGAIN_, END, BROKEN = range(13)
MARK, AGAIN = (MARK_,), (AGAIN_,)
NAMES = (
    "load", "store", "add", "swap", "futex wait", "futex wake", "read", "write", "meet", "mark",
    "again", "end", "broken",
)  # fmt: skip

Op = tuple[Any, ...]
Steps = Generator[Op, Any, Any]


def load(word: int, how: int) -> Op:
    """The word's value."""
    return LOAD, word, None, how


def at_least(word: int, least: int, how: int) -> Op:
    """A load, of which only is known whether it gave so much."""
    return LOAD, word, least, how


def store(word: int, value: int, how: int) -> Op:
    return STORE, word, value, how


def add(word: int, value: int, how: int) -> Op:
    """fetch_add."""
    return ADD, word, value, how


def swap(word: int, value: int, how: int) -> Op:
    """exchange."""
    return SWAP, word, value, how


def futex_wait(word: int, expected: int, low: int = 1 << 32) -> Op:
    """Sleep if the word has this value, of which only the lower part is compared."""
    return WAIT, word, expected, low


def futex_wake(word: int) -> Op:
    """Wake all."""
    return WAKE, word


def meet() -> Op:
    """Wait for all threads, by other means than the core's."""
    return (MEET,)


def read(datum: int) -> Op:
    return READ, datum


def write(datum: int, value: int) -> Op:
    return WRITE, datum, value
