"""Print the id, an address or the surroundings of a host.

``host_names.py id | address HOST | surroundings [WORD..]``
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys


def host_id() -> str:
    return f"{ctypes.CDLL(None).gethostid() & 0xFFFFFFFF:08x}"


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "id":
        print(host_id())
    elif what == "address":
        print(socket.gethostbyname(words[0]))
    else:
        print([os.getcwd(), os.environ["WORDS"], words])
