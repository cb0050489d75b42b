"""Try to open and to unlink files as the user ``nobody``, and print the successes.

``open_of_other_user.py FILE..``
"""

from __future__ import annotations

import os
import sys

NOBODY = 65534


def main(*paths: str) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    opened = []
    for path in paths:
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                os.close(os.open(path, flags))
                opened.append(path)
            except OSError:
                pass
    for path in paths:
        try:
            os.unlink(path)
            opened.append("unlinked " + path)
        except OSError:
            pass
    print(*opened, sep="\n")


main(*sys.argv[1:])
