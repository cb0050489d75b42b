"""Shared-memory segments of our own: nameless files that a node's threads map.

1. The creator opens a file without a name in ``XUPC_SHM_DIR`` (O_TMPFILE, so a
   killed job leaves nothing) and gives it a size; that costs no memory yet.
2. Its peers open ``/proc/PID/fd/N`` of the creator and map the same file.
3. Once all have mapped it the creator may close its descriptor.

Where O_TMPFILE or the peer's /proc is out of reach (macOS, another pid
namespace) a named file stands in: created exclusively, mode 0600, random name,
unlinked as soon as all have mapped it.

Pages are taken by `reserve` (fallocate), which fails with HeapError, never with
SIGBUS; what is free is asked of statvfs **and** of the cgroup first.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HeapError
from ..records import mutable_record
from ..topology import host

__all__ = [
    "Segment",
    "attach",
    "create",
    "drop_lock",
    "free_space",
    "hold_lock",
    "lock_holder",
    "shm_dir",
    "shortage",
    "sweep_stale",
    "try_lock",
]

NAME_PREFIX = "xupc-"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_FALLOC_PUNCH = 0x02 | 0x01  # PUNCH_HOLE | KEEP_SIZE
RESERVE = 32 << 20  # of a limit, or an eighth of it: for what the threads need besides the heap


def shm_dir() -> str:
    """Return the folder of segments: ``XUPC_SHM_DIR``, or /dev/shm, else the temp directory."""
    wanted = os.environ.get("XUPC_SHM_DIR")
    if wanted:
        return wanted
    if os.path.isdir("/dev/shm"):
        return "/dev/shm"
    import tempfile  # costs a start more than all else here, and is rarely needed

    return tempfile.gettempdir()


@mutable_record
class Segment:
    """A file of `nbytes` bytes, mapped at `address` in this process."""

    fd: int
    path: str
    named: bool
    nbytes: int
    map: memoryview
    array: NDArray[np.uint8]
    address: int

    def settle(self) -> None:
        """Remove the name of the segment, if it has one, after all peers have mapped it."""
        if self.named:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
            self.named = False

    def close_fd(self) -> None:
        """Keep the mapping, give the descriptor back (not while locks on it matter)."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read_only(self) -> memoryview:
        """Return another mapping of it, that cannot be written to."""
        return _bytes(_mapping(self.map_fd, self.nbytes, writable=False))

    def discard(self) -> None:
        """Free the pages, the name and the descriptor; keep only my mapping, which is unused."""
        self.settle()
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, 0)
        self.close_fd()

    def reserve(self, offset: int, nbytes: int) -> None:
        """Take the pages of a range, zero-filled where they are new.

        Raises
        ------
        HeapError
            If the file system has no space, or refuses.
        """
        if nbytes <= 0:
            return
        try:
            os.posix_fallocate(self.map_fd, offset, nbytes)
        except OSError as e:
            raise HeapError(f"no space for {nbytes} bytes in {shm_dir()}: {_reason(e)}") from e
        except AttributeError:  # macOS has no posix_fallocate
            self.array[offset : offset + nbytes] = 0

    @property
    def map_fd(self) -> int:
        """A descriptor for fallocate."""
        if self.fd < 0:
            raise ValueError("the segment's descriptor is closed")
        return self.fd

    def give_back(self, offset: int, nbytes: int) -> None:
        """Return the pages of a range; it reads as zeros afterwards."""
        if nbytes <= 0:
            return
        if sys.platform == "linux" and _punch_hole(self.map_fd, offset, nbytes):
            return
        self.array[offset : offset + nbytes] = 0


def _reason(error: OSError) -> str:
    """Return why pages could not be taken."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        with contextlib.suppress(OSError):
            return f"{free_space()} bytes are free"
    return str(error)


def shortage(error: OSError) -> str:
    """Return an OSError as text, with the limit and the remedy where the process ran out of it."""
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = f"this process may have {most} descriptors (ulimit -n)"
    elif error.errno == errno.ENOMEM:
        limit = "this process may have no more memory (ulimit -v) or mappings (vm.max_map_count)"
    else:
        return str(error)
    return f"{error}: {limit}: give back teams that you no longer need, with team.free()"


def _punch_hole(fd: int, offset: int, nbytes: int) -> bool:
    call = _libc().fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return int(call(fd, _FALLOC_PUNCH, offset, nbytes)) == 0


def create(nbytes: int) -> Segment:
    """Create a nameless segment of `nbytes` (sparse: pages come with `reserve`)."""
    where = shm_dir()
    fd, path, named = _open_new(where)
    try:
        os.ftruncate(fd, nbytes)
        return _map(fd, path, named, nbytes)
    except (OSError, OverflowError) as e:
        if named:
            os.unlink(path)
        os.close(fd)
        why = shortage(e) if isinstance(e, OSError) else str(e)
        raise HeapError(f"cannot make a segment of {nbytes} bytes in {where}: {why}") from e


def _open_new(where: str) -> tuple[int, str, bool]:
    flags = getattr(os, "O_TMPFILE", 0)
    if flags and os.environ.get("XUPC_NAMED_SEGMENTS") != "1":
        try:
            fd = os.open(where, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
            return fd, f"/proc/{os.getpid()}/fd/{fd}", False
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise HeapError(f"cannot make a segment in {where}: {shortage(e)}") from e
    while True:
        path = os.path.join(where, f"{NAME_PREFIX}{os.getuid()}-{os.urandom(16).hex()}")
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise HeapError(f"cannot make a segment in {where}: {shortage(e)}") from e
        if try_lock(fd, 0) and os.path.exists(path):
            return fd, path, True
        os.close(fd)  # a stale name is one whose lock is free: another job has swept it away


def sweep_stale() -> None:
    """Unlink our own user's named segments that no process holds any more."""
    pattern = f"{NAME_PREFIX}{os.getuid()}-*"
    for path in Path(shm_dir()).glob(pattern):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if try_lock(fd, 0):  # held until the name is removed: no process can lock it later
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        finally:
            os.close(fd)


def attach(path: str, nbytes: int) -> Segment:
    """Map a peer's segment.

    Raises
    ------
    OSError
        If the file is out of reach: then the two do not share a node. If it cannot be mapped.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size != nbytes:
            raise OSError(errno.ESTALE, f"{path} is not the segment it should be")
        return _map(fd, path, False, nbytes)
    except BaseException:
        os.close(fd)
        raise


def _map(fd: int, path: str, named: bool, nbytes: int) -> Segment:
    array = _mapping(fd, nbytes, writable=True)
    address = int(array.__array_interface__["data"][0])
    return Segment(fd, path, named, nbytes, _bytes(array), array, address)


def _bytes(array: Any) -> memoryview:
    return memoryview(array)


class _Mapping:
    """Pages mapped into this process, until the last array over them has gone."""

    def __init__(self, address: int, nbytes: int, writable: bool) -> None:
        self.__array_interface__ = {
            "data": (address, not writable), "shape": (nbytes,), "typestr": "|u1", "version": 3
        }  # fmt: skip
        ends = weakref.finalize(self, _libc().munmap, address, nbytes)
        ends.atexit = False  # views may outlive the interpreter's exit functions


def _mapping(fd: int, nbytes: int, *, writable: bool) -> NDArray[np.uint8]:
    """Map a file. Python's own `mmap` keeps a descriptor for each mapping until Python 3.13."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = _libc().mmap(None, nbytes, access, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return np.asarray(_Mapping(address, nbytes, writable))


_MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc


# -- locks: which threads are alive --------------------------------------------------------------


def hold_lock(fd: int, byte: int) -> None:
    """Take a write lock on a byte; the kernel drops it when this process ends, however."""
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte, os.SEEK_SET)


def try_lock(fd: int, byte: int) -> bool:
    """Take a write lock on a byte if it is free."""
    try:
        hold_lock(fd, byte)
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def drop_lock(fd: int, byte: int) -> None:
    """Give a lock back."""
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte, os.SEEK_SET)


def lock_holder(fd: int, byte: int) -> int | None:
    """Return the pid that holds a lock on a byte (0 if it is in another pid namespace), else None.

    Also right for zombies (their locks are gone) and across pid namespaces, where
    asking after a pid is not.  Locks of my own process are not seen.
    """
    if sys.platform != "linux":
        return 0  # cannot be asked; take it for alive
    ask = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, ask))
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])


# -- how much there is ---------------------------------------------------------------------------


def free_space() -> int:
    """Return bytes that can still be taken for segments: file system and cgroup, the smaller."""
    vfs = os.statvfs(shm_dir())
    free = vfs.f_bavail * vfs.f_frsize
    group = cgroup_headroom()
    return free if group is None else min(free, group)


def cgroup_headroom() -> int | None:
    """Return the bytes that the heap may take of my cgroup's memory, or None without a limit.

    Beyond the limit the kernel kills, and counts late: hence a reserve.
    """
    least: int | None = None
    for folder in host.groups("memory"):
        limit = _first(folder, "memory.max", "memory.limit_in_bytes")
        if limit is None or limit >= 1 << 60:
            continue
        used = _first(folder, "memory.current", "memory.usage_in_bytes")
        reserve = min(limit // 8, RESERVE)
        room = max(0, limit - reserve - (used or 0) + _inactive_file(folder))
        least = room if least is None else min(least, room)
    return least


def _first(folder: Path, *names: str) -> int | None:
    """Return the number in the first of some files that has one."""
    found = (host.number(host.read(folder / name)) for name in names)
    return next((n for n in found if n is not None), None)


def _inactive_file(folder: Path) -> int:
    """Return file cache that the kernel would drop first."""
    try:
        for line in (folder / "memory.stat").read_text().splitlines():
            name, value = line.split()
            if name in ("inactive_file", "total_inactive_file"):
                return int(value)
    except (OSError, ValueError):
        pass
    return 0
