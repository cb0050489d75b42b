"""Test what another user can access of a running job. Argument: the directory of segments.

Every shared mapping of this process is of a nameless file, or of one that only its owner may open.
A process of another user, started here, can open none of them: not through /proc, not by name.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from support.checked_calls import Usable, done

import xupc

INTRUDER = Path(__file__).with_name("open_of_other_user.py")


def files(where: Path) -> list[str]:
    """/proc paths of all open files and mappings of mine in the directory of segments."""
    device = where.stat().st_dev
    found = []
    for folder in ("fd", "map_files"):
        for entry in Path(f"/proc/{os.getpid()}/{folder}").iterdir():
            try:
                status = entry.stat()
            except OSError:  # the listing's own
                continue
            if status.st_dev == device and stat.S_ISREG(status.st_mode):
                assert status.st_uid == os.getuid(), entry
                assert stat.S_IMODE(status.st_mode) & 0o077 == 0, (entry, oct(status.st_mode))
                assert "xupc" not in os.readlink(entry) or status.st_nlink == 0, os.readlink(entry)
                found.append(str(entry))
    return found


def main() -> None:
    where = Path(sys.argv[1])
    xupc.init(timeout=30)
    team = xupc.init().split(0)
    arrays = xupc.all_alloc(1 << 22, team=team), xupc.node_array((1 << 16,), "u1")
    mine = files(where)
    assert len(mine) >= 4, mine  # at least the control file, the heap and its growth
    named = [str(p) for p in where.glob("xupc-*")]
    assert named == [], named
    run = subprocess.run(
        [sys.executable, str(INTRUDER), *mine],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert run.stdout.split() == [], run.stdout
    xupc.barrier()
    Usable()("the intruder")
    del arrays
    done(len(mine))


main()
