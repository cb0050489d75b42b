"""Host records: what identifies a thread's machine, and warnings about host ids.

Threads with equal records try to share memory; `xupc.topology.discovery` proves that they can.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..fingerprint import digest
from ..records import record
from .runs import name_threads

__all__ = [
    "HostRecord",
    "diagnose",
    "read_boot_id",
    "read_host_record",
]


_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_BYTES = 48
_HOSTNAME_BYTES = 128
# Little-endian, since the bytes feed a hash that must agree between machines.
_RECORD = struct.Struct(f"<IIQ{_BOOT_ID_BYTES}s{_HOSTNAME_BYTES}s")
_LOOPBACK = 127


@record
class HostRecord:
    """The fields that must be equal before two threads try to share memory.

    Parameters
    ----------
    hostid : int
        Answer of ``gethostid()``; kept modulo 2**32, since libc sign-extends it.
    boot_id : str
        The kernel's boot id, empty where the system has none.
    hostname : str
        Host name. Names above 128 bytes are shortened to a prefix and a hash.
    shm_dev : int
        Device number of the file system on which segments are made.
    uid : int
        User id of the thread's process.
    """

    hostid: int
    boot_id: str
    hostname: str
    shm_dev: int
    uid: int

    SIZE = _RECORD.size

    def __post_init__(self) -> None:
        put = object.__setattr__  # the dataclass is frozen; only this method sets fields
        put(self, "hostid", self.hostid & 0xFFFFFFFF)
        put(self, "boot_id", _fit(self.boot_id, _BOOT_ID_BYTES))
        put(self, "hostname", _fit(self.hostname, _HOSTNAME_BYTES))
        put(self, "shm_dev", self.shm_dev & 0xFFFFFFFFFFFFFFFF)
        put(self, "uid", self.uid & 0xFFFFFFFF)

    def pack(self) -> bytes:
        """Return the record as `HostRecord.SIZE` (192) bytes, the same on every platform."""
        return _RECORD.pack(
            self.hostid, self.uid, self.shm_dev, _encode(self.boot_id), _encode(self.hostname)
        )

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> HostRecord:
        """Return the record that `pack` wrote; ValueError if it is not 192 bytes long."""
        if len(data) != cls.SIZE:
            raise ValueError(f"a packed HostRecord has {cls.SIZE} bytes, got {len(data)}")
        hostid, uid, shm_dev, boot_id, hostname = _RECORD.unpack(data)
        return cls(hostid, _decode(boot_id), _decode(hostname), shm_dev, uid)

    def digest(self) -> int:
        """Return a 64-bit hash, equal for equal records in every process and on every host."""
        return int.from_bytes(digest(self.pack(), 8), "little")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _fit(text: str, room: int) -> str:
    """Return `text` if it fits into `room` bytes, else a prefix and a hash of the whole."""
    text = text.partition("\0")[0]
    data = _encode(text)
    if len(data) <= room:
        return text
    mark = "~" + digest(data, 8).hex()
    return data[: room - len(mark)].decode("utf-8", "ignore") + mark


def read_host_record(shm_dir: str) -> HostRecord:
    """Return the record of the calling process.

    Parameters
    ----------
    shm_dir : str
        Directory in which segments are made (``XUPC_SHM_DIR``).

    Raises
    ------
    OSError
        If `shm_dir` cannot be examined.
    """
    return HostRecord(
        hostid=_gethostid(),
        boot_id=read_boot_id(),
        hostname=os.uname().nodename,
        shm_dev=os.stat(shm_dir).st_dev,
        uid=os.getuid(),
    )


def _gethostid() -> int:
    """Return libc's host id, or 0 (as musl does) where libc has no such function."""
    function = getattr(ctypes.CDLL(None), "gethostid", None)
    if function is None:
        return 0
    function.restype = ctypes.c_long
    function.argtypes = ()
    return int(function())


def read_boot_id() -> str:
    """Return the id of this start of the kernel; empty where the system has none."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def diagnose(records: Sequence[HostRecord]) -> list[str]:
    """Report host ids that do not distinguish machines.

    These are an id of 0, one that glibc made from a loopback address, and one that several boot
    ids or several host names share. None of them makes the grouping wrong, since whole records
    are compared and sharing is proven.

    Parameters
    ----------
    records : sequence of HostRecord
        ``records[i]`` is thread i's.

    Returns
    -------
    list of str
        Warnings, ordered by the lowest thread concerned.
    """
    by_hostid: dict[int, list[int]] = {}
    for thread, found in enumerate(records):
        by_hostid.setdefault(found.hostid, []).append(thread)
    warnings: list[str] = []
    for hostid, threads in by_hostid.items():
        own = [records[thread] for thread in threads]
        warnings += _odd_value(hostid, name_threads(threads))
        warnings += _shared_by(hostid, "boot ids", (record.boot_id for record in own))
        warnings += _shared_by(hostid, "host names", (record.hostname for record in own))
    return warnings


def _odd_value(hostid: int, threads: str) -> Iterator[str]:
    if hostid == 0:
        yield f"gethostid is 0 on {threads}: it does not distinguish machines"
    octets = _address_behind(hostid)
    if octets[0] == _LOOPBACK:
        address = ".".join(map(str, octets))
        yield (
            f"gethostid 0x{hostid:08x} on {threads} looks derived from the loopback address "
            f"{address}: other machines answer the same"
        )


def _shared_by(hostid: int, what: str, values: Iterable[str]) -> Iterator[str]:
    """Warn about several values; an empty one is unknown and does not count."""
    distinct = [value for value in dict.fromkeys(values) if value]
    if len(distinct) > 1:
        sample = ", ".join(distinct[:3]) + (", …" if len(distinct) > 3 else "")
        yield f"gethostid 0x{hostid:08x} is shared by {len(distinct)} {what}: {sample}"


def _address_behind(hostid: int) -> bytes:
    """Return the octets of the IPv4 address from which glibc would derive `hostid`.

    glibc swaps the 16-bit halves of the address as it lies in memory, read as a little-endian word.
    """
    swapped = (hostid << 16 | hostid >> 16) & 0xFFFFFFFF
    return swapped.to_bytes(4, "little")
