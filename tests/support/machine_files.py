"""Recorded machines: `tests/support/machines/*.txt` as folders laid out like sysfs.

A line has the name of a level and its domains: lists of processors, "none" for a NUMA node without
any. "0-3 +4 x8" is the list 0-3 and seven more, each shifted by 4. "numa@8" numbers a NUMA node.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from xupc.topology.host import cpu_list
from xupc.topology.machine import Machine
from xupc.topology.sysfs import machine_of

FOLDER = Path(__file__).parent / "machines"
MACHINES = sorted(path.stem for path in FOLDER.glob("*.txt"))
TOPOLOGY = {
    "socket": ("package_cpus_list", "core_siblings_list"),
    "die": ("die_cpus_list",),
    "cluster": ("cluster_cpus_list",),
    "core": ("core_cpus_list", "thread_siblings_list"),
}
CACHES = {"l1": 1, "l2": 2, "l3": 3}

Domains = list[frozenset[int]]


def domains_of(words: str) -> Domains:
    """Return the domains of a line."""
    if match := re.fullmatch(r"(\S+) \+(\d+) x(\d+)", words):
        first, step, count = cpu_list(match[1]), int(match[2]), int(match[3])
        return [frozenset(cpu + step * i for cpu in first) for i in range(count)]
    return [frozenset() if word == "none" else cpu_list(word) for word in words.split()]


def facts_of(text: str) -> dict[str, Domains]:
    """Return the domains of each name; those of several lines together."""
    facts: dict[str, Domains] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, words = line.split(maxsplit=1)
            facts.setdefault(name, []).extend(domains_of(words))
    return facts


def machine_facts(name: str) -> dict[str, Domains]:
    """Return the domains of a recorded machine."""
    return facts_of((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def recorded_machine(name: str) -> Machine:
    """Return a recorded machine, read from some thousand files that are then removed."""
    with tempfile.TemporaryDirectory() as folder:
        return machine_of(str(write_sysfs(machine_facts(name), Path(folder))))


def write_sysfs(facts: dict[str, Domains], root: Path) -> Path:
    """Write the files that Linux has for such a machine; return `root`."""
    system = root / "sys" / "devices" / "system"
    _write(system / "cpu" / "online", _listed(facts["online"][0]))
    for cpu in facts.get("offline", [frozenset()])[0]:
        _write(system / "cpu" / f"cpu{cpu}" / "online", "0")
    for name, domains in facts.items():
        level, _, number = name.partition("@")
        if level == "numa":
            start = int(number or 0)
            for i, domain in enumerate(domains, start):
                _write(system / "node" / f"node{i}" / "cpulist", _listed(domain))
            continue
        for domain in domains:
            for cpu in domain:
                _write_level(system / "cpu" / f"cpu{cpu}", level, _listed(domain))
    return root


def _write_level(folder: Path, level: str, cpus: str) -> None:
    for name in TOPOLOGY.get(level, ()):
        _write(folder / "topology" / name, cpus)
    if level in CACHES:
        index = folder / "cache" / f"index{CACHES[level]}"
        _write(index / "level", str(CACHES[level]))
        _write(index / "type", "Unified")
        _write(index / "shared_cpu_list", cpus)


def _listed(cpus: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")
