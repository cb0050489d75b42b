"""Edges in a picture by Sobel's filter, under PULL, PUSH and MULTICORE, and checked with numpy.

    xupc run -n 4 --nodes 2x2 examples/sobel.py [width] [folder]

Thread 0 has a picture. `all_scatter` gives each thread some of its rows, and `memget` gets the rows
next to them. `all_reduce_mpi_all` finds the strongest edge, by which brightness is scaled.
`all_gather` brings the rows of edges back to thread 0. An algorithm flag changes how data moves,
but no other line.

The picture is drawn by this program, always the same one. With a folder, thread 0 writes it there
as before.png, and its edges as after.png.
"""

import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import xupc

ALGORITHMS = {"PULL": xupc.PULL, "PUSH": xupc.PUSH, "MULTICORE": xupc.MULTICORE}
REPETITIONS = 5  # of which the fastest counts: the first ones make plans
SEED = 1968


def picture(width: int) -> np.ndarray:
    """Draw a lighthouse at night, `width` pixels wide, in 256 grades of grey."""
    height = max(1, width * 5 // 8)
    x = np.arange(width) / width
    y = (np.arange(height) / height)[:, None]
    seen = 30 + 60 * y + np.zeros(width)
    stars = np.random.default_rng(SEED).random((90, 3)) * [width, 0.5 * height, 200]
    seen[stars[:, 1].astype(int), stars[:, 0].astype(int)] += stars[:, 2]
    beam = np.abs(y - 0.3 - 0.22 * (0.7 - x)) < 0.12 * (0.7 - x)
    seen[beam] += (90 * (0.3 + x) + 0 * y)[beam]
    moon = np.hypot(x - 0.18, (y - 0.2) * 5 / 8)
    seen[moon < 0.07] = (225 - 700 * np.hypot(x - 0.2, (y - 0.23) * 5 / 8))[moon < 0.07]
    for level, grey, waves in ((0.55, 70, 5), (0.63, 50, 9), (0.70, 32, 17)):
        ridge = level + 0.05 * np.sin(waves * x + level * 40) + 0.02 * np.sin(3.1 * waves * x)
        seen[y > ridge] = grey
    sea = y > 0.78
    ripples = 12 * np.sin(260 * y**2 + 3 * np.sin(25 * x)) + 9 * np.sin(420 * y + 40 * x)
    seen = np.where(sea, 75 + ripples - 40 * (y - 0.78), seen)
    seen[sea & (np.abs(x - 0.18) < 0.03 + 0.1 * (y - 0.78))] += 70
    rock = y > 0.80 - 0.09 * np.exp(-(((x - 0.72) / 0.11) ** 2)) + 0.01 * np.sin(90 * x)
    seen[rock & (y < 0.86) & (np.abs(x - 0.72) < 0.2)] = 40
    tower = (np.abs(x - 0.72) < 0.022 + 0.03 * (y - 0.33)) & (y > 0.36) & (y < 0.74)
    stripes = np.where((y * 13).astype(int) % 2, 205, 120) + 0 * x
    seen[tower] = stripes[tower]
    seen[(np.abs(x - 0.72) < 0.034) & (np.abs(y - 0.36) < 0.008)] = 15
    seen[(np.abs(x - 0.72) < 0.017) & (y > 0.27) & (y < 0.352)] = 250
    seen[(np.abs(x - 0.72) < (y - 0.215) * 0.45) & (y < 0.27)] = 90
    return np.clip(seen, 0, 255).astype(np.uint8)


def gradient(framed: np.ndarray) -> np.ndarray:
    """Return |horizontal| + |vertical| change of brightness, for all pixels but the frame's."""
    p = framed.astype(np.int32)
    across = p[:-2] + 2 * p[1:-1] + p[2:]
    along = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]
    return np.abs(across[:, 2:] - across[:, :-2]) + np.abs(along[2:] - along[:-2])


def scaled(edges: np.ndarray, strongest: int) -> np.ndarray:
    """Return edges in 256 grades of grey; white is the strongest."""
    return (edges * 255 // max(1, strongest)).astype(np.uint8)


def by_numpy(seen: np.ndarray) -> np.ndarray:
    """Return the edges of a whole picture, by one process."""
    edges = gradient(np.pad(seen, 1, mode="edge"))
    return scaled(edges, int(edges.max()))


def png(grey: np.ndarray) -> bytes:
    """Return a picture in the format PNG."""
    height, width = grey.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        ends = struct.pack(">I", len(data)), struct.pack(">I", zlib.crc32(kind + data))
        return ends[0] + kind + data + ends[1]

    rows = np.pad(grey, ((0, 0), (1, 0)))  # each begins with its filter, 0: none
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey
    body = zlib.compress(rows.tobytes(), 9)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", body), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


class Filter:
    """Hold a picture in blocks of rows, and its edges; all threads make it together."""

    def __init__(self, seen: np.ndarray) -> None:
        self.height, self.width = seen.shape
        self.rows = -(-self.height // xupc.THREADS)
        everything, block = self.rows * xupc.THREADS * self.width, self.rows * self.width
        # Indefinite: all of it is on thread 0, the root of scatter and gather.
        self.whole = xupc.all_alloc(everything, np.uint8, blocksize=0)
        self.edges = xupc.all_alloc(everything, np.uint8, blocksize=0)
        self.mine = xupc.all_alloc(everything, np.uint8, blocksize=block)
        self.mine_edges = xupc.all_alloc(everything, np.uint8, blocksize=block)
        self.strongest = xupc.all_alloc(xupc.THREADS, np.int32)
        if xupc.MYTHREAD == 0:
            self.whole.local[: seen.size] = seen.ravel()
        self.first = min(xupc.MYTHREAD * self.rows, self.height)
        self.end = min(self.first + self.rows, self.height)

    def framed(self) -> np.ndarray:
        """Return my rows in a frame: the pixels next to them, or the outermost ones again."""
        mine = self.mine.local.reshape(self.rows, self.width)[: self.end - self.first]
        found = np.pad(mine, 1, mode="edge")
        for row, at in ((0, self.first - 1), (-1, self.end)):
            if 0 <= at < self.height:
                line = np.empty(self.width, np.uint8)
                xupc.memget(line, self.mine + at * self.width, self.width)
                found[row] = np.pad(line, 1, mode="edge")
        return found

    def run(self, flag: int) -> None:
        """Find the edges; thread 0 has all of them then."""
        block = self.rows * self.width
        xupc.all_scatter(self.mine, self.whole, block, flag)
        found = np.zeros((0, self.width), np.int32)
        if self.end > self.first:
            found = gradient(self.framed())
        self.strongest.local[:] = found.max(initial=0)
        xupc.all_reduce_mpi_all(self.strongest, None, xupc.MAX, flags=flag)  # in place
        self.mine_edges.local[: found.size] = scaled(found, self.strongest.local[0]).ravel()
        xupc.all_gather(self.edges, self.mine_edges, block, flag)

    def result(self) -> np.ndarray:
        """Return the edges, on thread 0."""
        return self.edges.local[: self.height * self.width].reshape(self.height, self.width)


def main(width: int, folder: str) -> int:
    """Filter by each algorithm and compare; return 1 on thread 0 if an edge is wrong."""
    with xupc.init() as team:
        seen = picture(width)
        edges = Filter(seen)
        right, good = by_numpy(seen), True
        if xupc.MYTHREAD == 0:
            nodes = len(team.tree.nodes)
            size = f"{seen.shape[1]} x {seen.shape[0]}"
            place = f"{xupc.THREADS} threads on {nodes} node{'s'[: nodes != 1]}"
            print(f"a picture of {size} pixels, {place}")
        for name, flag in ALGORITHMS.items():
            spent = []
            for _ in range(REPETITIONS):
                if xupc.MYTHREAD == 0:
                    edges.edges.local[:] = 0
                xupc.barrier()
                began = time.perf_counter()
                edges.run(flag)
                spent.append(time.perf_counter() - began)
            if xupc.MYTHREAD == 0:
                same = np.array_equal(edges.result(), right)
                good = good and same
                said = "equal to numpy's" if same else "NOT EQUAL TO NUMPY'S"
                print(f"{name:<10} {min(spent) * 1e3:8.2f} ms  every edge {said}")
        if xupc.MYTHREAD == 0 and folder:
            Path(folder, "before.png").write_bytes(png(seen))
            Path(folder, "after.png").write_bytes(png(edges.result()))
        return 0 if good else 1


if __name__ == "__main__":
    chosen = sys.argv[1:]
    if len(chosen) > 2 or not all(text.isdecimal() and int(text) for text in chosen[:1]):
        print("usage: sobel.py [width] [folder]", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(int(chosen[0]) if chosen else 640, chosen[1] if chosen[1:] else ""))
