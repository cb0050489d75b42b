"""The costs of steps, which the clock of `xupc.backends.simulator.timeline` charges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEFAULTS", "Rates", "rates_of"]

DEFAULTS = {
    "copy rate": 8e9,
    "line latency ns": 100.0,
    "wire rate": 1.25e9,
    "wire latency ns": 20e3,
}
"""The values that stand for bounds that were not measured."""


@dataclass(frozen=True)
class Rates:
    """The costs of steps, in bytes per ns and in ns.

    Attributes
    ----------
    copy, wire
        Rates of a thread's copies and of each link of a node in each direction.
    line, latency
        Latencies of a cache line and of the network.
    assumed
        The bounds that were not measured.
    send, receive, per_byte
        Processor time of MPI: per message that a thread sends or receives, and per byte of either.
    node_copy
        Rate of the copies of all threads of a node together.
    cores
        Cores of a machine; 0: one for each thread.
    nodes
        Nodes of one machine, which share its cores and its memory; 0: all of them.
    call, step
        Processor time of a call outside its steps, and of each step besides its bytes.
    switch
        Processor time until a waiting thread runs again, on a machine with more threads than cores.
    cached, cache
        Rate of a copy whose bytes are in a cache, and the bytes that the cache of one core holds.
        Rate 0: that of any copy.
    crossing
        Rate of a copy whose bytes come from the cache of another core. 0: that of any copy.
    fold, scan
        Rates at which a reduction and a scan read their operands in a cache. 0: that of a copy.
    burst
        Bytes that a link carries at once after it has been idle.
    links, split
        Links of a node, and the bytes from which a message goes over all of them. 0: none does, and
        each thread has one of them.
    dealt
        1: the cores of a machine are dealt to its nodes, one after the other. 0: these share all.
    carry, carry_byte
        Time of a core of the sender's node for a message, as a part of `latency`. And time of one
        core at either end for each byte, while the message is on its way.
    turn, serve_turn
        Time that a thread looks for messages before the next one on its core does; the second one
        in calls that read one-sided.
    read
        Processor time of a one-sided read, besides `send`.
    serve, serve_byte
        Processor time of the thread whose memory is read, and for each byte the time in which it
        handles no other message. 0: the network reads without that thread.
    """

    copy: float
    line: float
    wire: float
    latency: float
    assumed: tuple[str, ...] = ()
    send: float = 0.0
    receive: float = 0.0
    per_byte: float = 0.0
    node_copy: float = math.inf
    cores: int = 0
    nodes: int = 1
    call: float = 0.0
    step: float = 0.0
    switch: float = 0.0
    cached: float = 0.0
    cache: float = 0.0
    crossing: float = 0.0
    fold: float = 0.0
    scan: float = 0.0
    burst: float = 0.0
    links: int = 1
    split: int = 0
    dealt: int = 0
    carry: float = 0.0
    carry_byte: float = 0.0
    turn: float = 0.0
    read: float = 0.0
    serve: float = 0.0
    serve_byte: float = 0.0
    serve_turn: float = 0.0


def rates_of(bounds: Mapping[str, float], several_nodes: bool) -> Rates:
    """Return the rates for the measured bounds of a job; one node needs no wire rates."""
    usable = {k: v for k, v in bounds.items() if k in DEFAULTS and math.isfinite(v) and v > 0}
    values = {**DEFAULTS, **usable}
    needed = [name for name in DEFAULTS if several_nodes or "wire" not in name]
    return Rates(
        values["copy rate"] / 1e9,
        values["line latency ns"],
        values["wire rate"] / 1e9,
        values["wire latency ns"],
        tuple(name for name in needed if name not in usable),
    )
