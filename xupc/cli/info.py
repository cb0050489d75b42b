"""`xupc info`: what is in use on this machine, and what is wrong with it.

`collect` asks the system. It never hangs, and starts no MPI in this process. Everything after it is
a function of the `Facts` that it returns. `job_info` adds the facts of a job's threads, the command
those that were measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from xupc.api.lifecycle import described_machine, settings_of
from xupc.topology.host_record import diagnose, read_host_record
from xupc.tuning.host_figures import HostFigures
from xupc.tuning.selection_file import BUILT_IN
from xupc.tuning.selection_file import find as find_table
from xupc.tuning.selection_file import load as load_table

from ..topology import host
from ..topology.levels import NodeLevels, node_levels
from ..topology.machine import Machine
from ..topology.runs import plural
from ..topology.sysfs import machine_here
from . import batch, diagnostics
from .common import figures_text, plain
from .facts import SHM_DEFAULT, Facts, Heap, Thread
from .mpi import (
    FAMILY_NAMES,
    LaunchError,
    Mpi,
    Probe,
    family_of,
    find_mpi,
    identify,
    parse_version,
    probe_mpi,
)
from .variables import PREFIX, unknown

__all__ = [
    "as_json",
    "collect",
    "problems",
    "render",
    "this_process",
    "unusable",
]

CORE = "xupc.backends.native._core"
MIN_PYTHON = (3, 11)
REQUIRED = {"mpi4py": (4, 1), "numpy": (2, 0), "psutil": (5, 9), "click": (8, 2), "jinja2": (3, 1)}
FOR_PAGES = "jinja2"  # without which all else works


# --- asking the system ----------------------------------------------------------------------------


def collect(
    *,
    probe: Callable[..., Probe] = probe_mpi,
    find: Callable[[], Mpi] = find_mpi,
    timeout: float = 30.0,
) -> Facts:
    """Return the facts; `probe` and `find` are replaceable for tests."""
    load = host.load_average()  # before the probes, whose processes would count
    found = probe(start=True, timeout=timeout)
    if found.error:  # a library that does not start can be identified all the same
        loaded = probe(start=False, timeout=timeout)
        found = Probe(loaded.library, loaded.path, "", found.error)
    mpi, mpi_error = None, ""
    try:
        mpi = find()
    except LaunchError as error:
        mpi_error = str(error)
    core, core_error = _core()
    heap = _heap(os.environ.get("XUPC_SHM_DIR") or SHM_DEFAULT)
    tuning, tuning_error, figures, figures_source = _tuning()
    hostname, hostid, notes = _host_identity(heap.directory)
    return Facts(
        versions={name: _version(name) for name in ("xupc", *REQUIRED)},
        probe=found,
        mpi=mpi,
        mpi_error=mpi_error,
        on_path=_on_path(mpi),
        core=core,
        core_error=core_error,
        compiler=host.c_compiler(),
        heap=heap,
        mpi_shm=host.free_shared_memory(diagnostics.MPI_SHM),
        memory_limit=host.memory_limit(),
        cpus=os.cpu_count() or 1,
        cpus_allowed=host.cpus_allowed(),
        cpu_limit=host.cpu_limit(),
        numa_nodes=host.numa_nodes(host.affinity()),
        memory_closed=host.memory_closed(),
        governors=host.governors(),
        load=load,
        machine=_machine(),
        tuning=tuning,
        tuning_error=tuning_error,
        figures=figures,
        figures_source=figures_source,
        settings_error=_settings(),
        hostname=hostname,
        hostid=hostid,
        hostid_notes=notes,
        batch="" if mpi is None else batch.obstacle(os.environ, mpi.family),
        batch_remark=batch.remark(os.environ),
        variables={k: v for k, v in sorted(os.environ.items()) if k.startswith(PREFIX)},
    )


def this_process() -> Thread:
    """Return where this process may run."""
    cores = host.affinity()
    return Thread(platform.node(), cores, host.cpu_limit(), host.numa_nodes(cores))


def _on_path(ours: Mpi | None) -> Mpi | None:
    """Return the mpiexec that a user's plain `mpiexec` starts, if it is another file than ours."""
    found = shutil.which("mpiexec")
    if found is None or (ours is not None and Path(found).resolve() == ours.mpiexec.resolve()):
        return None
    return Mpi(*identify(Path(found)), Path(found), "on PATH")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _core() -> tuple[str, str]:
    """Return the native core's file, or "" and the reason for its absence."""
    try:
        spec = importlib.util.find_spec(CORE)
        if spec is None:
            return "", "not built"
        importlib.import_module(CORE)
    except Exception as error:  # whatever a broken extension raises, it is a finding
        return "", f"does not load: {error}"
    return spec.origin or "built in", ""


def _tuning() -> tuple[str, str, HostFigures | None, str]:
    """Return the selection table's file, its error, the figures of this host and their table."""
    found, here = find_table(), socket.gethostname()
    try:
        table = load_table(found)
    except ValueError as error:
        return found.path if found is not None else "none", str(error), None, ""
    return table.name, "", table.figures_of(here), table.source_of(here)


def _settings() -> str:
    """Return why `init` would refuse a variable, if it would."""
    try:
        settings_of()
        described_machine()
    except ValueError as error:
        return str(error)
    return ""


def _machine() -> Machine | None:
    """Return the machine of ``XUPC_TOPOLOGY``, else this one; None if it is not described."""
    try:
        return described_machine() or machine_here()
    except ValueError:
        return None


def _heap(directory: str) -> Heap:
    try:
        stat = os.statvfs(directory)
    except OSError:
        return Heap(directory)
    writable = os.access(directory, os.W_OK | os.X_OK)
    return Heap(directory, stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize, writable)


def _host_identity(shm_dir: str) -> tuple[str, int | None, tuple[str, ...]]:
    try:
        record = read_host_record(shm_dir)
    except OSError:
        return platform.node(), None, ()
    return record.hostname, record.hostid, tuple(diagnose([record]))


# --- judging --------------------------------------------------------------------------------------


def unusable(facts: Facts) -> list[str]:
    """Return what keeps xupc from working here at all."""
    return list(_unusable(facts))


def _unusable(facts: Facts) -> Iterator[str]:
    if tuple(int(part) for part in facts.python.split(".")[:2]) < MIN_PYTHON:
        yield f"Python {facts.python} is too old: {_dotted(MIN_PYTHON)} is needed"
    for package in REQUIRED:
        if package != FOR_PAGES:
            yield from _lacking(facts, package)
    if facts.versions.get("mpi4py") is not None:
        if not facts.probe.library:
            yield (
                f"mpi4py cannot load an MPI library ({facts.probe.error}): install one, "
                "for example with pip install 'xupc[mpich]'"
            )
        elif facts.probe.error:
            yield f"MPI does not start: {facts.probe.error}"
    if facts.tuning_error:
        yield facts.tuning_error
    if facts.settings_error:
        yield facts.settings_error
    if facts.heap.free is None:
        yield f"there is no directory {facts.heap.directory} for shared memory: set XUPC_SHM_DIR"
    elif not facts.heap.writable:
        yield f"{facts.heap.directory} is not writable: set XUPC_SHM_DIR"
    yield from diagnostics.alone(facts)


def _lacking(facts: Facts, package: str) -> Iterator[str]:
    """Yield what is wrong with a package that is needed."""
    version, least = facts.versions.get(package), REQUIRED[package]
    if version is None:
        yield f"{package} is not installed"
    elif _release(version) < least:
        yield f"{package} {version} is too old: {_dotted(least)} is needed"


def problems(facts: Facts) -> list[str]:
    """Return everything that is wrong, the fatal first."""
    return [*_unusable(facts), *_impaired(facts)]


def _impaired(facts: Facts) -> Iterator[str]:
    if facts.probe.library:
        if facts.mpi is None:
            yield f"xupc run does not work: {facts.mpi_error}"
        elif facts.mpi.family != family_of(facts.probe.library):
            yield (
                f"mpi4py loads {_library(facts.probe)}, but the launcher {facts.mpi.mpiexec} "
                f"belongs to {facts.mpi}"
            )
    if facts.batch:
        yield f"xupc run does not work: {facts.batch}"
    if not facts.core:
        needed = "" if facts.compiler else "a C compiler (none was found) and "
        yield (
            f"the native core is missing ({facts.core_error}): every call is many times slower; "
            f"install {needed}Python's headers, then reinstall xupc (pip install "
            "--force-reinstall --no-deps --no-cache-dir)"
        )
    for problem in _lacking(facts, FOR_PAGES):
        yield f"{problem}: xupc report and xupc demo make no page"
    yield from diagnostics.troubles(facts)
    if facts.measure_error:
        yield f"nothing could be measured: {facts.measure_error}"
    engine = facts.variables.get("XUPC_ENGINE", "")
    if engine == "python" and facts.core:
        yield "XUPC_ENGINE=python: the native core is there but not used"
    yield from unknown(facts.variables)


# --- showing --------------------------------------------------------------------------------------


def as_json(facts: Facts) -> str:
    """Return the facts, the problems and the remarks as one object of JSON."""
    return json.dumps(
        plain(facts)
        | {
            "problems": problems(facts), "unusable": unusable(facts),
            "remarks": list(diagnostics.remarks(facts)),
        }
    )  # fmt: skip


def render(facts: Facts) -> str:
    """Return the report that `xupc info` prints."""
    lines = [f"{name:<15}{text}" for name, text in _rows(facts)]
    found = problems(facts)
    lines.append("")
    if found:
        lines.append(f"{len(found)} problem{'s'[: len(found) != 1]}")
        lines += [f"  - {problem}" for problem in found]
    else:
        lines.append("nothing wrong")
    if remarks := list(diagnostics.remarks(facts)):
        lines += ["", "worth knowing", *(f"  - {remark}" for remark in remarks)]
    return "\n".join(lines)


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "xupc", facts.versions.get("xupc") or "not installed as a package"
    yield "Python", f"{facts.python}  {facts.executable}"
    yield "numpy", facts.versions.get("numpy") or "missing"
    yield "mpi4py", facts.versions.get("mpi4py") or "missing"
    yield "MPI", _mpi_row(facts)
    if facts.mpi is not None:
        yield "mpiexec", f"{facts.mpi.mpiexec}  ({facts.mpi.origin})"
    else:
        yield "mpiexec", "none"
    slow = f"none ({facts.core_error}): the Python engine runs, many times slower"
    yield "native core", facts.core or slow
    yield "tuning table", facts.tuning
    if facts.figures is not None:
        yield "host figures", _figures_row(facts.figures, facts.figures_source)
    yield "shared memory", _heap_row(facts.heap)
    limit = facts.memory_limit
    yield "memory limit", "none" if limit is None else f"{_size(limit)} (cgroup)"
    if facts.probe.library:
        yield "background", _background_row(facts.probe)
    yield "cores", _cores_row(facts)
    described = " (XUPC_TOPOLOGY)" if facts.variables.get("XUPC_TOPOLOGY") else ""
    yield "machine", "unknown" if facts.machine is None else f"{facts.machine}{described}"
    if facts.threads:
        yield "threads", _threads_row(facts.threads)
        yield "levels", _levels_row(facts)
    yield from _measured_rows(facts)
    yield "host", facts.hostname
    yield "host id", "unknown" if facts.hostid is None else f"0x{facts.hostid:08x}"
    for note in facts.hostid_notes:
        yield "", f"{note}; xupc does not rely on it alone"
    if not facts.variables:
        yield "variables", "no XUPC_* set"
    for number, (name, value) in enumerate(facts.variables.items()):
        yield "" if number else "variables", f"{name}={value}"


def _figures_row(figures: HostFigures, source: str) -> str:
    how = f"of {source}"
    if source == BUILT_IN:
        how = "built in, for any host; xupc tune --host-only measures this one"
    return f"{figures_text(figures)} ({how})"


def _mpi_row(facts: Facts) -> str:
    if not facts.probe.library:
        return "none"
    level = facts.probe.thread_level
    return _library(facts.probe) + (f", threads: {level}" if level else "")


def _background_row(probe: Probe) -> str:
    """Return whether messages between nodes make progress while the program computes."""
    if probe.thread_level == "multiple":
        return "posted calls and one-sided accesses go on between nodes while threads compute"
    return (
        f"between nodes nothing goes on while threads compute: MPI's thread level is "
        f"{probe.thread_level or 'unknown'}, not multiple"
    )


def _library(probe: Probe) -> str:
    name = FAMILY_NAMES.get(family_of(probe.library), probe.library.splitlines()[0][:60])
    where = f"  {Path(probe.path)}" if probe.path else ""
    return f"{name} {parse_version(probe.library)}{where}"


def _heap_row(heap: Heap) -> str:
    if heap.free is None or heap.size is None:
        return f"{heap.directory} is not there"
    return f"{heap.directory}, {_size(heap.free)} free of {_size(heap.size)}"


def _cores_row(facts: Facts) -> str:
    text = str(facts.cpus)
    if facts.cpus_allowed != facts.cpus:
        text += f", {facts.cpus_allowed} allowed by the affinity mask"
    if facts.cpu_limit is not None:
        text += f", quota {facts.cpu_limit:g} (cgroup)"
    return text


def _threads_row(threads: tuple[Thread, ...]) -> str:
    hosts = len({thread.host for thread in threads})
    least, most = (pick(len(thread.cores) for thread in threads) for pick in (min, max))
    where = "this machine" if hosts == 1 else f"{hosts} machines"
    room = str(most) if least == most else f"{least} to {most}"
    return f"{len(threads)} on {where}, {'each ' * (len(threads) > 1)}allowed {room} of its cores"


def _levels_row(facts: Facts) -> str:
    """Return the levels of this machine's threads, or those that they would have if bound."""
    masks = [thread.cores for thread in facts.threads if thread.host == facts.hostname]
    if facts.machine is not None and facts.variables.get("XUPC_TOPOLOGY"):
        masks = list(facts.machine.masks(len(masks)))
    if not masks:
        return "unknown: no thread is on this machine"
    levels = node_levels(facts.machine, masks)
    if not levels.is_flat:
        return _domains(levels)
    if len(masks) < 2 or len(set(masks)) > 1:
        return "the node alone"
    text = "the node alone: threads are not bound to different cores"
    if facts.machine is None or masks[0].isdisjoint(facts.machine.cpus):
        return text
    allowed = facts.machine.within(masks[0])
    bound = node_levels(allowed, allowed.masks(len(masks)))
    if bound.is_flat:
        return text
    return f"{text}; xupc run --bind auto binds them, so that calls know {_domains(bound)}"


def _domains(levels: NodeLevels) -> str:
    return ", ".join(
        f"{level.name} ({plural(len(level.domains), 'domain')})" for level in levels.levels
    )


def _measured_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    found = facts.measured
    if not found and not facts.measure_error:
        yield "measured", "nothing; xupc info --measure does, in a job that takes seconds"
    if "copy rate" in found:
        text = f"{_rate(found['copy rate'])} by one thread"
        if "node copy rate" in found:
            text += f", {_rate(found['node copy rate'])} by all threads of a node together"
        yield "copy rate", text
    if "line latency ns" in found:
        yield "cache line", f"{_time(found['line latency ns'])} from core to core"
    for level in (key.partition(", ")[2] for key in found if key.startswith("line latency ns, ")):
        rates = [
            f"{_rate(found[key])} {what}"
            for key, what in ((f"cached copy rate, {level}", "from a cache"),
                              (f"copy rate, {level}", "from memory"))
            if key in found
        ]  # fmt: skip
        text = ", ".join([f"a cache line {_time(found[f'line latency ns, {level}'])}", *rates])
        yield f"by {level}", text
    if "wire rate" in found:
        rate, latency = _rate(found["wire rate"]), _time(found["wire latency ns"])
        yield "wire", f"{rate}, {latency} for 8 bytes, between node roots by MPI"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def _time(ns: float) -> str:
    return f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.3g} µs"


def _size(count: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.4g} {units[0]}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, two of them at most."""
    numbers = []
    for part in version.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
