"""The part of `xupc tune` that measures the host: launches of a probe, and what they decide."""

from __future__ import annotations

import sys
import time

from xupc.bench import host_decision
from xupc.bench.decisions import LEAST_LAUNCHES
from xupc.bench.host_decision import Launch
from xupc.bench.tuning_file import TuningFile
from xupc.tuning.host_figures import HostFigures
from xupc.tuning.selection_file import built_in

from .common import EnvironmentProblem, figures_text
from .diagnostics import others_computed
from .jobs import measured_by
from .tune_report import remark

__all__ = ["add_host"]

HOST_LAUNCHES = 7  # if there is time


def add_host(
    file: TuningFile, threads: int, limit: float, load: float, *, needed: bool = False
) -> str:
    """Measure the figures of this host in jobs of its own, and put them into a table.

    The jobs have so many threads, and together `limit` seconds; `load` is the load average before
    the command. Returns what to print. If nothing could be measured, this is the reason, unless the
    figures are `needed`: then it is an error.
    """
    host, launches, why = _host_launches(threads, limit)
    if why:
        text = f"the figures of this host were not measured: {why}"
        if needed:
            raise EnvironmentProblem(text)
        return text
    usual = built_in().figures_of("*")
    found = host_decision.decided(launches, usual)
    used = {name: found.get(name, getattr(usual, name)) for name in HostFigures.__match_args__}
    kept = ", ".join(name for name in used if name not in found)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    made = f"{now}, {len(launches)} launches of {threads} threads"
    remarks = [remark(f"{made}: {' '.join(['xupc', *sys.argv[1:]])}")]
    text = f"host {host}: {figures_text(HostFigures(**used))}"
    if kept:
        remarks.append(remark(f"as built in, since nothing is better beyond doubt: {kept}"))
        text += f"\n{remarks[-1]}"
    if busy := others_computed(load, threads):
        remarks.append(remark(f"{busy}, and these figures may be wrong"))
        text += f"\n{remarks[-1]}; repeat xupc tune --host-only when the machine is idle"
    if file.figures(host) != found:
        file.put_host(host, found, remarks)
    return text


def _host_launches(threads: int, limit: float) -> tuple[str, list[Launch], str]:
    """Return the host, what launches of the probe found there, and the reason if that is none."""
    launches: list[Launch] = []
    host, longest, end = "", 0.0, time.monotonic() + limit
    while len(launches) < HOST_LAUNCHES:
        began = time.monotonic()
        left = end - began
        if launches and left < longest:
            break
        found, why = measured_by("xupc.bench.host_probe", threads, f"1x{threads}", left)
        if not found.get("launch") and len(launches) >= LEAST_LAUNCHES:
            break
        if not found.get("launch"):
            why = why or "its threads have one core, or cannot access the memory of each other"
            return host, launches, why
        host = found["host"]
        launches.append(Launch(**found["launch"]))
        longest = max(longest, time.monotonic() - began)
    few = len(launches) < LEAST_LAUNCHES
    why = f"{len(launches)} launches in {limit:.0f} s, expected {LEAST_LAUNCHES}" if few else ""
    return host, launches, why
