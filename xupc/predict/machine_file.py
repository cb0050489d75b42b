"""Files that describe a machine by what its steps cost, for `xupc predict`.

A file is TOML::

    version = 4
    name = "cluster-a"
    [wire_rate]
    value = 12.5e9
    low = 11.8e9
    high = 12.6e9
    source = "measured"

Each parameter may have an interval and a source. One that is missing has the value of the file
``default``, whose values are assumed. An assumed value has an interval of a factor of `UNKNOWN`
both ways.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..backends.simulator.rates import Rates
from ..given_files import contents_of
from ..records import record

__all__ = ["MEANING", "Machine", "Parameter", "built_in_names", "find", "parse", "text_of"]

VERSION = 4
READABLE = 1, 2, 3, 4  # files of earlier versions lack the parameters since then
UNKNOWN = 1.5
ASSUMED = "assumed"
LARGEST = 1 << 16  # a file beyond this is not of a machine
FOLDER = Path(__file__).parent / "machines"

MEANING: Mapping[str, str] = {
    "copy_rate": "bytes per second that one thread copies",
    "node_copy_rate": "bytes per second that all threads of a node copy together",
    "line_latency": "seconds until another core sees a store",
    "wire_rate": "bytes per second of each link of a node, in each direction",
    "wire_latency": "seconds from one node to another one",
    "send_time": "seconds of the sending thread for a message",
    "receive_time": "seconds of the receiving thread for a message",
    "byte_time": "seconds of either thread for a byte of a message",
    "cores": "cores of a machine, 0 for one of each thread",
    "nodes_on_machine": "nodes that share the cores of one machine, 0 for all of them",
    "call_time": "seconds of a thread for a call besides its steps",
    "step_time": "seconds of a step besides its bytes",
    "switch_time": "seconds of a core until a waiting thread runs, with more threads than cores",
    "cache_copy_rate": "bytes per second of a copy whose bytes are in a cache",
    "cache_size": "bytes that the cache of one core holds",
    "crossing_rate": "bytes per second of a copy out of the cache of another core",
    "fold_rate": "bytes per second that a reduction reads out of a cache",
    "scan_rate": "bytes per second that a scan reads out of a cache",
    "wire_burst": "bytes that a link carries at once after it has been idle",
    "links": "links of a node",
    "split_size": "bytes from which a message goes over all links, 0 if each thread has one",
    "cores_dealt": "1 if the cores of a machine are dealt to its nodes, 0 if these share all",
    "carry_time": "seconds of a core of the sender's node for a message, a part of wire_latency",
    "carry_byte_time": "seconds of a core at either end for a byte that is on its way",
    "turn_time": "seconds that a thread looks for messages, then the next one on its core does",
    "read_time": "seconds of a thread for a one-sided read, besides send_time",
    "serve_time": "seconds of the thread whose memory is read, 0 if the network reads without it",
    "serve_byte_time": "seconds for each byte read, in which that thread handles nothing else",
    "serve_turn_time": "turn_time in calls that read one-sided",
}
"""The parameters of a machine."""
_RATES = (
    "copy_rate", "node_copy_rate", "wire_rate", "cache_copy_rate", "cache_size", "crossing_rate",
    "fold_rate", "scan_rate", "wire_burst",
)  # fmt: skip
_MAY_BE_ZERO = (
    "send_time", "receive_time", "byte_time", "call_time", "step_time", "switch_time", "wire_burst",
    "carry_time", "carry_byte_time", "turn_time", "read_time", "serve_time", "serve_byte_time",
    "serve_turn_time",
)  # fmt: skip
COUNTS = "cores", "nodes_on_machine", "links", "split_size", "cores_dealt"
"""The parameters that are whole numbers, known without an interval."""


@record
class Parameter:
    """One property of a machine, in bytes and seconds, with its interval and its source."""

    value: float
    low: float
    high: float
    source: str

    @property
    def assumed(self) -> bool:
        """Return True if it was not measured and is not published."""
        return self.source == ASSUMED


@record
class Machine:
    """A name, and all parameters by the names of `MEANING`."""

    name: str
    parameters: Mapping[str, Parameter]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the names of the parameters that are assumed."""
        return tuple(name for name, each in self.parameters.items() if each.assumed)

    def rates(self, pick: Callable[[str, Parameter], float] | None = None) -> Rates:
        """Return the costs of steps for the clock; `pick` chooses another value of a parameter."""
        p = {n: pick(n, x) if pick else x.value for n, x in self.parameters.items()}
        return Rates(
            p["copy_rate"] / 1e9, p["line_latency"] * 1e9, p["wire_rate"] / 1e9,
            p["wire_latency"] * 1e9, self.assumed, p["send_time"] * 1e9, p["receive_time"] * 1e9,
            p["byte_time"] * 1e9, p["node_copy_rate"] / 1e9, int(p["cores"]),
            int(p["nodes_on_machine"]), p["call_time"] * 1e9, p["step_time"] * 1e9,
            p["switch_time"] * 1e9, p["cache_copy_rate"] / 1e9, p["cache_size"],
            p["crossing_rate"] / 1e9, p["fold_rate"] / 1e9, p["scan_rate"] / 1e9, p["wire_burst"],
            int(p["links"]), int(p["split_size"]), int(p["cores_dealt"]),
            p["carry_time"] * 1e9, p["carry_byte_time"] * 1e9, p["turn_time"] * 1e9,
            p["read_time"] * 1e9, p["serve_time"] * 1e9, p["serve_byte_time"] * 1e9,
            p["serve_turn_time"] * 1e9,
        )  # fmt: skip

    def fastest(self) -> Rates:
        """Return the costs at the better ends of all intervals."""
        return self.rates(lambda name, p: p.high if name in _RATES else p.low)

    def slowest(self) -> Rates:
        """Return the costs at the worse ends of all intervals."""
        return self.rates(lambda name, p: p.low if name in _RATES else p.high)


def built_in_names() -> tuple[str, ...]:
    """Return the names of the machines that the library describes."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def find(name: str) -> Machine:
    """Read a built-in machine by its name, or a file by its path.

    Raises
    ------
    ValueError
        There is no such machine, or the file is wrong. The message names the place.
    """
    built_in = FOLDER / f"{name}.toml"
    path = built_in if name in built_in_names() else Path(name)
    try:
        text = contents_of(path, LARGEST)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"machine {name!r}: expected a file or one of {', '.join(built_in_names())}; "
            f"{getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        return parse(tomllib.loads(text.decode()), path.stem)
    except RecursionError:
        raise ValueError(f"machine {path}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"machine {path}: {error}") from None


def parse(given: Mapping[str, Any], name: str = "") -> Machine:
    """Return the machine that a file describes; ValueError says what is wrong with it."""
    if given.get("version") not in READABLE:
        known = " or ".join(map(str, READABLE))
        raise ValueError(f"version: expected {known}, got {given.get('version')!r}")
    named = given.get("name", name)
    if not isinstance(named, str):
        raise ValueError(f"name: expected text, got {named!r}")
    unknown = sorted(set(given) - {"version", "name", *MEANING})
    if unknown:
        raise ValueError(f"{unknown[0]}: expected one of {', '.join(MEANING)}")
    whole = {key: _parameter(key, given[key]) for key in MEANING if key in given}
    if len(whole) < len(MEANING):
        default = find("default").parameters
        whole = {key: whole.get(key, default[key]) for key in MEANING}
    return Machine(named, whole)


def _parameter(key: str, given: Any) -> Parameter:
    """Return one parameter of a file."""
    if not isinstance(given, dict) or "value" not in given:
        raise ValueError(f"{key}: expected a table with value and, if known, low, high and source")
    unknown = sorted(set(given) - {"value", "low", "high", "source"})
    if unknown:
        raise ValueError(f"{key}: {unknown[0]}: expected value, low, high or source")
    source = given.get("source", ASSUMED)
    if not isinstance(source, str):
        raise ValueError(f"{key}: source: expected text, got {source!r}")
    value = _number(key, "value", given["value"])
    if key in COUNTS:
        low = high = value
    else:
        spread = UNKNOWN if source == ASSUMED else 1.0
        low = _number(key, "low", given.get("low", value / spread))
        high = _number(key, "high", given.get("high", value * spread))
    if not low <= value <= high:
        raise ValueError(f"{key}: expected low <= value <= high, got {low}, {value}, {high}")
    return Parameter(value, low, high, source)


def _number(key: str, part: str, given: Any) -> float:
    """Return a number of a file, if it is one that a clock can use."""
    number = type(given) in (int, float)
    if key in COUNTS and not (type(given) is int and 0 <= given < 1 << 63):
        raise ValueError(f"{key}: {part}: expected an int, 0 or more, got {given!r:.40}")
    if key == "links" and not given:
        raise ValueError(f"{key}: {part}: expected an int, 1 or more, got 0")
    if key == "cores_dealt" and given > 1:
        raise ValueError(f"{key}: {part}: expected 0 or 1, got {given}")
    if not number or not 0 <= given <= sys.float_info.max:  # an int may be longer than any float
        raise ValueError(f"{key}: {part}: expected a positive number, got {given!r:.40}")
    if given == 0 and key not in (*_MAY_BE_ZERO, *COUNTS):
        raise ValueError(f"{key}: {part}: expected a positive number, got 0")
    return float(given)


def text_of(machine: Machine) -> str:
    """Return a machine as the text of a file."""
    lines = [f"version = {VERSION}", f"name = {_quoted(machine.name)}"]
    for key, p in machine.parameters.items():
        lines += ["", f"[{key}]  # {MEANING[key]}"]
        if key in COUNTS:
            lines.append(f"value = {int(p.value)}")
        else:
            lines += [f"value = {p.value!r}", f"low = {p.low!r}", f"high = {p.high!r}"]
        lines.append(f"source = {_quoted(p.source)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return text as a basic string of TOML."""
    kept = "".join(c if c.isprintable() else " " for c in text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'
