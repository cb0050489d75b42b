"""The errors that a simulation raises; each one has a list of findings."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DeadlockError",
    "ProtocolError",
    "RaceError",
    "SimulationError",
    "WrongBytesError",
]

_SHOWN: Final = 12


class SimulationError(Exception):
    """Report that plans are wrong; `findings` says what was seen."""

    def __init__(self, *findings: object) -> None:
        self.findings = findings
        shown = [str(finding) for finding in findings[:_SHOWN]]
        if len(findings) > _SHOWN:
            shown.append(f"... and {len(findings) - _SHOWN} more")
        super().__init__("\n".join(shown))


class ProtocolError(SimulationError):
    """Report a step that no backend can run, or two steps that do not fit together."""


class RaceError(SimulationError):
    """Report accesses that nothing orders; `findings` are Race tuples."""


class DeadlockError(SimulationError):
    """Report that no actor can continue; `findings` name each blocked actor and its step."""


class WrongBytesError(SimulationError):
    """Report that a user's read found other bytes than expected."""
