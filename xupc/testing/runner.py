"""Run tests of this pytest as jobs: keep the jobs, and report one result for all threads."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..cli.mpi import LaunchError
from .jobs import Job, Run, StartError
from .merging import merged, not_started, recorded
from .settings import Setting, runs_as_job, setting_of

__all__ = ["Runner"]

_MOST_THREADS = 16  # of idle jobs together
# Options of plugins that would start processes, measure, or choose other tests in each thread.
_OFF: dict[str, Any] = {
    "numprocesses": None, "maxprocesses": None, "dist": "no", "tx": [], "looponfail": False,
    "distload": False, "cov_source": None, "lf": False, "failedfirst": False, "newfirst": False,
    "usepdb": False, "trace": False, "capture": "no", "maxfail": 0, "stepwise": False,
    "xupc_np": None, "xmlpath": None,
}  # fmt: skip


class Runner:
    """The jobs of a session, by setting; those that were used last come last.

    Attributes
    ----------
    ends
        How jobs ended that did not end well after their last test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.ends: list[str] = []
        self._config = config
        self._jobs: dict[Setting, Job] = {}
        self._numbers = itertools.count()
        self._warned: set[tuple[object, ...]] = set()

    def run(self, item: pytest.Item, follows: pytest.Item | None) -> None:
        """Run a test as a job and report it; `follows` is the next test, if it is one of a job."""
        setting = setting_of(item)
        hooks = item.ihook
        hooks.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        goes_on = follows is not None and setting_of(follows) == setting
        with self._turn():
            reports = self._reports(item, setting, follows.nodeid if follows and goes_on else None)
        for report in reports:
            hooks.pytest_runtest_logreport(report=report)
        hooks.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(
        self, item: pytest.Item, setting: Setting, follows: str | None
    ) -> list[pytest.TestReport]:
        try:
            job = self._take(item, setting)
        except LaunchError as error:
            pytest.exit(f"xupc: no job can be started: {error}", returncode=4)
        except StartError as error:
            return [not_started(item, str(error))]
        try:
            found = job.run(item.nodeid, follows)
        except BaseException:  # Ctrl-C
            self._jobs.pop(setting).kill()
            raise
        if found.failed:
            self._drop(setting, found)
        self._warn(found)
        self._print(found)
        return merged(item, found)

    def _take(self, item: pytest.Item, setting: Setting) -> Job:
        """Return the job of a setting; it is started if there is none."""
        job = self._jobs.pop(setting, None)
        if job is None:
            while (
                self._jobs and setting.threads + sum(s.threads for s in self._jobs) > _MOST_THREADS
            ):
                self._close(next(iter(self._jobs)))
            request = self._request(item, setting)
            job = Job(setting, request, self._config.invocation_params.dir)
        self._jobs[setting] = job
        return job

    def _request(self, item: pytest.Item, setting: Setting) -> dict[str, Any]:
        """Return what a thread's pytest is given: this one's options, and the files it collects."""
        config = self._config
        options = {k: v for k, v in vars(config.option).items() if _picklable(v)}
        options.pop("file_or_dir", None)
        options |= {name: value for name, value in _OFF.items() if name in options}
        options |= {
            "plugins": [*config.option.plugins, "no:terminal"], "rootdir": str(config.rootpath),
            "inifilename": None if config.inipath is None else str(config.inipath),
        }  # fmt: skip
        items = item.session.items
        later = items[items.index(item) :]
        files = dict.fromkeys(
            str(i.path) for i in later if runs_as_job(i) and setting_of(i) == setting
        )
        temporary = self._temporary() / f"job{next(self._numbers)}"
        return {
            "options": options, "files": list(files), "path": sys.path,
            "temporary": str(temporary),
        }  # fmt: skip

    def _drop(self, setting: Setting, found: Run) -> None:
        """End a job whose test has failed: with its fixtures if all threads are at its end."""
        job = self._jobs.pop(setting)
        if found.why:
            job.kill()
        else:
            job.close()

    def _close(self, setting: Setting) -> None:
        if words := self._jobs.pop(setting).close():
            self.ends.append(words)

    def close(self) -> None:
        """End all jobs, as a program ends that has no more to do."""
        while self._jobs:
            self._close(next(iter(self._jobs)))

    def kill(self) -> None:
        """End all jobs at once."""
        while self._jobs:
            self._jobs.popitem()[1].kill()

    def _temporary(self) -> Path:
        """Return the folder of this pytest's temporary files."""
        factory: pytest.TempPathFactory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        return factory.getbasetemp()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other process of pytest-xdist runs a job: its threads need the cores."""
        if not hasattr(self._config, "workerinput"):
            yield
            return
        with (self._temporary().parent / "xupc-job.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _warn(self, found: Run) -> None:
        """Record the warnings of threads, each once."""
        for what in found.warnings:
            key = what["text"], what["file"], what["line"], what["nodeid"]
            if key not in self._warned:
                self._warned.add(key)
                self._config.hook.pytest_warning_recorded.call_historic(kwargs=recorded(what))

    def _print(self, found: Run) -> None:
        """Print what threads have printed if pytest captures nothing (-s)."""
        if self._config.option.capture != "no" or hasattr(self._config, "workerinput"):
            return
        for thread, text in enumerate(found.output):
            for line in text.splitlines():
                print(f"[thread {thread}] {line}")


def _picklable(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True
