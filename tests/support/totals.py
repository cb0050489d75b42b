"""Prints what a run of ``scripts/test`` found: its slowest tests, what failed, and the totals.

``python tests/support/totals.py FOLDER`` reads the junit files of the stages in FOLDER, and the
names of those that ended without one (NAME.crashed). The exit status is 1 if a test failed or none
ran.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

__all__ = ["failures", "main"]

SLOWEST = 20  # tests
HEAD, TAIL = 6, 18  # lines of a failure
WIDTH = 240  # characters of a line


def _cases(folder: Path) -> Iterator[ET.Element]:
    for file in sorted(folder.glob("*.xml")):
        yield from ET.parse(file).getroot().iter("testcase")


def _name(case: ET.Element) -> str:
    return f"{case.get('classname', '')}::{case.get('name', '')}"


def _slowest(cases: list[ET.Element]) -> Iterator[str]:
    for case in sorted(cases, key=lambda c: -float(c.get("time", 0)))[:SLOWEST]:
        yield f"{float(case.get('time', 0)):8.1f} s  {_name(case)}"
        for found in case.iter("property"):
            if found.get("name") == "late":
                yield found.get("value", "")


def failures(case: ET.Element) -> Iterator[str]:
    """Yield the first and the last lines of each failure of a test: its words and their end.

    The end of a report shows what the threads printed last and where they were; the whole is at the
    end of the test's stage.
    """
    for failure in (*case.iter("failure"), *case.iter("error")):
        lines = [line[:WIDTH] for line in (failure.text or "").rstrip().splitlines()]
        if len(lines) > HEAD + TAIL:
            left = len(lines) - HEAD - TAIL
            lines[HEAD:-TAIL] = [f"[... {left} lines]"]
        yield "\n".join([f"FAILED {_name(case)}", *(f"    {line}" for line in lines)])


def main(folder: Path) -> int:
    """Print all; return the exit status."""
    cases = list(_cases(folder))
    print("the slowest tests:", *_slowest(cases), sep="\n")
    failed = [text for case in cases for text in failures(case)]
    if failed:
        print("\nwhat failed, in short:", *failed, sep="\n")
    skipped = sum(case.find("skipped") is not None for case in cases)
    bad = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    passed = len(cases) - skipped - bad
    bad += len(list(folder.glob("*.crashed")))
    print(f"\n{passed} passed, {bad} failed, {skipped} skipped")
    return int(passed == 0 or bad > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
