"""One thread of a job of tests: a pytest that runs the tests which `jobs.py` sends.

Executed as a plain file by the launcher, so pytest imports xupc as in any program's tests. It
collects the files that pytest has collected before, and runs one test at a time. Reports and
warnings go to `jobs.py`, output goes to a file of this thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

# Set by the launchers for each of their threads.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
FINE = (0, 1, 5)  # statuses of pytest: all passed, some failed, none ran


class Rank:
    """The plugin of a thread: it takes tests from `jobs.py` and sends reports.

    Messages are pairs of a kind and a value: "report", "warning", "done" (the name of a test) and
    "missing" (why a test is not here). What comes is (name, the next test's name, seconds), or None
    at the end.
    """

    def __init__(self, connection: Connection, config: Any, stacks: Any) -> None:
        self._connection, self._config, self._stacks = connection, config, stacks
        self._trouble: list[str] = []

    def send(self, kind: str, value: object) -> None:
        """Send a message; `jobs.py` may have ended meanwhile."""
        with contextlib.suppress(OSError):
            self._connection.send((kind, value))

    def pytest_collectreport(self, report: Any) -> None:
        """Keep the errors of a collection."""
        if report.failed:
            self._trouble.append(f"{report.nodeid}: {report.longrepr}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        """Run tests as they are sent, instead of all."""
        items = {item.nodeid: item for item in session.items}
        self.send("ready", None)
        with contextlib.suppress(EOFError, OSError):
            while (task := self._connection.recv()) is not None:
                self._run(items, *task)
        return True

    def _run(self, items: dict[str, Any], name: str, follows: str | None, limit: float) -> None:
        """Run a test; `follows` keeps the fixtures that the next one shares with it."""
        if name not in items:
            found = "\n".join(self._trouble) or f"{len(items)} other tests are"
            self.send("missing", f"{name} was not collected on this thread: {found}")
        else:
            item = items[name]
            faulthandler.dump_traceback_later(limit, file=self._stacks)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=items.get(follows or ""))
            faulthandler.cancel_dump_traceback_later()
        sys.stdout.flush()
        sys.stderr.flush()
        self.send("done", name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: Any) -> None:
        """Hide the library's frames from a traceback; --full-trace shows them."""
        if call.excinfo is not None:
            for name in [name for name in sys.modules if name.startswith("xupc.")]:
                vars(sys.modules[name])["__tracebackhide__"] = True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Send a report."""
        config = self._config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self.send("report", data)

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a warning, with the name of its class."""
        kind = warning_message.category
        self.send("warning", {
            "module": kind.__module__, "name": kind.__qualname__,
            "text": str(warning_message.message), "file": warning_message.filename,
            "line": warning_message.lineno, "when": when, "nodeid": nodeid,
        })  # fmt: skip


def number() -> int:
    """Return which thread this is, by the launcher's variables."""
    return int(next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0"))


def main() -> int:
    """Run tests until `jobs.py` sends no more; return 0 if this thread did all it was sent."""
    folder, me = Path(os.environ["XUPC_TEST_RANK_FOLDER"]), number()
    output = os.open(folder / f"output.{me}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it may be killed
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(folder / "socket"))
    connection = Connection(link.detach())
    connection.send(("rank", me))
    request = pickle.loads((folder / "request").read_bytes())
    sys.path[:] = request["path"]
    with (folder / f"stacks.{me}").open("w") as stacks:
        status = run(request, connection, me, stacks)
    return 0 if status in FINE else status


def run(request: dict[str, Any], connection: Connection, me: int, stacks: Any) -> int:
    """Start pytest with the options of the pytest that runs `jobs.py`; return its status."""
    from _pytest.config import Config  # as pytest-xdist does in its workers

    options = request["options"]
    options["basetemp"] = f"{request['temporary']}-{me}"
    config = Config.fromdictargs(options, request["files"])
    # By this attribute, which pytest-xdist introduced, plugins leave their files to one process.
    workers = request["threads"]
    config.workerinput = {  # type: ignore[attr-defined]
        "workerid": f"thread{me}", "workercount": workers, "testrunuid": request["tag"],
        "mainargv": sys.argv,
    }  # fmt: skip
    config.pluginmanager.register(Rank(connection, config, stacks))
    try:
        return int(config.hook.pytest_cmdline_main(config=config) or 0)
    finally:
        config._ensure_unconfigure()


if __name__ == "__main__":
    sys.exit(main())
