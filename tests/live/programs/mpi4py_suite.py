"""Run modules of mpi4py's own test suite: ``mpi4py_suite.py FOLDER OUT MODULE ...``.

FOLDER is the folder ``test`` of mpi4py's source distribution. Each thread writes the outcome of its
tests to OUT.RANK, a line of JSON each: [test, "ok", "skipped", "not finished" or its error].
"""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path
from typing import Any, TextIO, cast


class Outcomes(unittest.TextTestResult):
    """A result that writes the start and the outcome of each test at once."""

    out: TextIO

    def _note(self, test: unittest.TestCase, outcome: str) -> None:
        self.out.write(json.dumps([test.id(), outcome]) + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._note(test, "not finished")

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._note(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._note(test, "skipped")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._note(test, f"{err[0].__name__}: {err[1]}")

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, f"{err[0].__name__}: {err[1]}")


def main(folder: str, out: str, *names: str) -> None:
    """Run the modules and write the outcomes of this thread."""
    sys.argv[1:] = []
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    for missing in ("cupy", "numba"):
        sys.modules[missing] = None  # type: ignore[assignment]

    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()  # opens a team: nonblocking calls do not
    tests = unittest.defaultTestLoader.loadTestsFromNames(names)
    with Path(f"{out}.{MPI.COMM_WORLD.Get_rank()}").open("w", buffering=1) as Outcomes.out:
        unittest.TextTestRunner(resultclass=cast(Any, Outcomes), verbosity=0).run(tests)


if __name__ == "__main__":  # the workers of mpi4py.futures import this file, too
    main(*sys.argv[1:])
