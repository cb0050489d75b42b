"""Bytes over sockets between hosts, without MPI: ``on_the_wire.py receive | send HOST NBYTES``."""

from __future__ import annotations

import socket
import sys
import time

PORT = 5000


def receive() -> None:
    """Take what comes from one peer until it ends, and answer."""
    server = socket.create_server(("", PORT))
    print("ready", flush=True)
    peer, _ = server.accept()
    while peer.recv(1 << 20):
        pass
    peer.sendall(b"!")


def send(host: str, nbytes: str) -> None:
    """Print the seconds from the first byte to the answer."""
    peer = socket.create_connection((host, PORT))
    begin = time.perf_counter()
    peer.sendall(bytes(int(nbytes)))
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive()
    else:
        send(*sys.argv[2:])
