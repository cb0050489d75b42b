"""Read a machine's domains from sysfs, or from a directory with a recorded one.

Only what is needed is read: the lists of a processor that a list before already contains are not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .host import cpu_list, number, read
from .machine import Machine, describe, nest

__all__ = ["machine_here", "machine_of", "read_machine"]

SYSTEM = Path("/sys/devices/system")
_TOPOLOGY = {  # the file's names, newest first
    "socket": ("package_cpus_list", "core_siblings_list"),
    "die": ("die_cpus_list",),
    "cluster": ("cluster_cpus_list",),
    "core": ("core_cpus_list", "thread_siblings_list"),
}

Known = Callable[[int], frozenset[int] | None]


def machine_of(text: str) -> Machine:
    """Return the machine that ``XUPC_TOPOLOGY`` describes: a directory, else as for `describe`.

    Raises
    ------
    ValueError
        If it is neither, or the directory's files contradict each other.
    """
    path = Path(text.strip())
    try:
        is_directory = path.is_dir()
    except (OSError, ValueError):
        is_directory = False
    if not is_directory:
        return describe(text)
    places = [path / place for place in ("sys/devices/system", "devices/system", ".")]
    system = next((place for place in places if (place / "cpu").is_dir()), None)
    try:
        if system is None:
            raise ValueError("expected a directory with sys/devices/system/cpu in it")
        return read_machine(system)
    except ValueError as e:
        raise ValueError(f"XUPC_TOPOLOGY is {text!r:.200}: {e}") from None


def machine_here() -> Machine | None:
    """Return this machine, None where the system does not describe it, or wrongly."""
    try:
        return read_machine(SYSTEM)
    except ValueError:
        return None


def read_machine(system: Path = SYSTEM) -> Machine:
    """Return the machine that a directory with ``cpu`` and ``node`` in it describes.

    Parameters
    ----------
    system : Path
        As /sys/devices/system.

    Raises
    ------
    ValueError
        If there are no processors, or lists are malformed or contradict each other.
    """
    cpus = _online(system / "cpu")
    found = [(name, _divide(cpus, known, name)) for name, known in _sources(system, cpus)]
    return nest(cpus, ((name, domains) for name, domains in found if domains))


def _online(folder: Path) -> frozenset[int]:
    listed = _list_in(folder / "online")
    cpus = listed or frozenset(
        index
        for path in folder.glob("cpu[0-9]*")
        if (index := number(path.name[3:])) is not None and (path / "topology").is_dir()
    )
    if not cpus:
        raise ValueError(f"{folder} lists no processors: expected a file online, or cpu0/topology")
    return cpus


def _list_in(path: Path) -> frozenset[int]:
    try:
        return cpu_list(read(path))
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from None


def _sources(system: Path, cpus: frozenset[int]) -> list[tuple[str, Known]]:
    """Return for each name of a level the function that returns a processor's domain."""
    folder = system / "cpu"
    sources = [(name, _topology_list(folder, files)) for name, files in _TOPOLOGY.items()]
    sources.append(("numa", _numa(system / "node", cpus)))
    caches = _Caches(folder, cpus)
    return [*sources, ("l3", caches.at(3)), ("l2", caches.at(2))]


def _topology_list(folder: Path, files: tuple[str, ...]) -> Known:
    def known(cpu: int) -> frozenset[int] | None:
        lists = (_list_in(folder / f"cpu{cpu}" / "topology" / name) for name in files)
        return next((found for found in lists if found), None)

    return known


def _numa(folder: Path, cpus: frozenset[int]) -> Known:
    lists = [_list_in(node / "cpulist") & cpus for node in sorted(folder.glob("node[0-9]*"))]

    def known(cpu: int) -> frozenset[int] | None:
        return next((domain for domain in lists if cpu in domain), None)

    return known


class _Caches:
    """The caches of each processor.

    Most processors have the same caches in the same order, so that two files each are read.
    """

    def __init__(self, folder: Path, cpus: frozenset[int]) -> None:
        self._folder = folder
        self._cpus = cpus
        self._index = dict.fromkeys(range(10), 0)  # of each level, where it was found last

    def at(self, level: int) -> Known:
        """Return what divides the processors by their caches of a level.

        Of a processor without one, such as some cores of laptops, its widest cache counts.
        """
        if not any(self._cache(cpu, level) for cpu in sorted(self._cpus)):
            return lambda cpu: None

        def known(cpu: int) -> frozenset[int] | None:
            caches = (self._cache(cpu, narrower) for narrower in range(level, 0, -1))
            return next((cache for cache in caches if cache), None)

        return known

    def _cache(self, cpu: int, level: int) -> frozenset[int]:
        """Return the processors that share a cache of this one; none if there is no such cache."""
        folder = self._folder / f"cpu{cpu}" / "cache"
        for index in (self._index[level], *range(10)):
            cache = folder / f"index{index}"
            found = number(read(cache / "level"))
            if found == level and read(cache / "type") != "Instruction":
                self._index[level] = index
                return _list_in(cache / "shared_cpu_list")
        return frozenset()


def _divide(cpus: frozenset[int], known: Known, name: str) -> list[frozenset[int]]:
    """Return the domains of some processors; none if no domain is known."""
    left, domains = set(cpus), []
    for cpu in sorted(cpus):
        if cpu not in left or (domain := known(cpu)) is None:
            continue
        domain &= cpus
        if cpu not in domain or not domain <= left:
            raise ValueError(
                f"the lists of level {name} contradict each other: processor {cpu} is in "
                f"{sorted(domain)!s:.80}, expected lists that contain their own processor and "
                "do not overlap"
            )
        left -= domain
        domains.append(domain)
    return domains
