"""A ReFrame check of xupc's collectives: right results, and the time of each size.

    reframe -C SETTINGS -c scripts/reframe/xupc_check.py -r -n XupcCheck
    reframe ... -S num_tasks=64 -S num_tasks_per_node=16 -S XupcCheck.sizes=8:1048576

For ReFrame 4. It runs `xupc bench COLLECTIVE`, the job's own launcher starting the threads, and
reads its text: lines of a size in bytes, a time in us and more, after a heading that begins with #.
Python is found on PATH: activate xupc's environment before, or name modules by `-S modules=...`.
Times to compare with are set as usual, by `reference`; without them nothing is compared.
"""

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import (
    parameter,
    run_before,
    sanity_function,
    variable,
)

LINE = r"^\s*{size}\s+(?P<us>\d+(?:\.\d+)?)\b"


@rfm.simple_test
class XupcCheck(rfm.RunOnlyRegressionTest):
    """One collective over all threads of the job."""

    collective = parameter(
        [
            "barrier",
            "all_broadcast",
            "all_scatter",
            "all_gather",
            "all_gather_all",
            "all_exchange",
            "all_permute",
            "all_reduce",
            "all_prefix_reduce",
            "all_reduce_all",
            "allav_reduce_all",
        ]
    )
    sizes = variable(str, value="8:1048576")
    """Bytes of a block, least and most: a power of two each, all of them in between are run."""
    extra = variable(typ.List[str], value=[])
    """More options for xupc bench."""

    descr = "xupc: time of a collective by size"
    valid_systems = ["*"]  # noqa: RUF012 - ReFrame copies it
    valid_prog_environs = ["*"]  # noqa: RUF012
    num_tasks = 2
    num_cpus_per_task = 1
    exclusive_access = True
    time_limit = "10m"
    executable = "python -m xupc"

    @run_before("run")
    def set_options(self):
        """Set the options of the command; the barrier has no sizes."""
        sizes = [] if self.collective == "barrier" else ["-m", self.sizes]
        usual = ["--flags", "auto", "-c", "--budget", "2m"]
        self.executable_opts = ["bench", self.collective, *sizes, *usual, *self.extra]

    @property
    def expected(self):
        """The sizes of which there must be a line."""
        if self.collective == "barrier":
            return [0]
        least, most = (int(part) for part in self.sizes.split(":"))
        return [1 << power for power in range(64) if least <= 1 << power <= most]

    @sanity_function
    def every_size_is_right(self):
        """Return that it ended well, results were right, and there is a time for each size."""
        found = [sn.assert_found(LINE.format(size=size), self.stdout) for size in self.expected]
        right = sn.assert_not_found(r"\bFail\s*$", self.stdout)
        return sn.all([sn.assert_eq(self.job.exitcode, 0), right, *found])

    @run_before("performance")
    def set_performance(self):
        """Set a figure for each size, like `8 B`."""
        self.perf_variables = {
            f"{size} B": sn.make_performance_function(
                sn.extractsingle(LINE.format(size=size), self.stdout, "us", float), "us"
            )
            for size in self.expected
        }
