"""Run modules of mpi4py's own test suite: ``mpi4py_suite.py FOLDER OUT MODULE ...``.

FOLDER is the folder ``test`` of mpi4py's source distribution. Each thread writes the outcome of its
tests to OUT.RANK, as JSON: {test: "ok", "skipped" or the last line of its error}.
"""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path
from typing import Any

folder, out, *names = sys.argv[1:]
sys.argv[1:] = []
sys.path.insert(0, folder)
sys.dont_write_bytecode = True
for missing in ("cupy", "numba"):
    sys.modules[missing] = None  # type: ignore[assignment]

from mpi4py import MPI  # noqa: E402

RANK = MPI.COMM_WORLD.Get_rank()
FILE = Path(f"{out}.{RANK}")


class Outcomes(unittest.TextTestResult):
    """A result that keeps the outcome of each test, and writes the tests begun so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.found: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.found[test.id()] = "not finished"
        FILE.write_text(json.dumps(self.found))

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.found[test.id()] = "ok"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.found[test.id()] = "skipped"

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.found[test.id()] = f"{err[0].__name__}: {err[1]}"

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.found[test.id()] = f"{err[0].__name__}: {err[1]}"


tests = unittest.defaultTestLoader.loadTestsFromNames(names)
result = unittest.TextTestRunner(resultclass=Outcomes, verbosity=0).run(tests)
FILE.write_text(json.dumps(result.found))  # type: ignore[attr-defined]
