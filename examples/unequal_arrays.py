"""A program with a mistake: thread 1 calls the same collective with fewer elements.

    xupc run -n 4 --nodes 2x2 examples/unequal_arrays.py

Every thread gets an error that names the call, the argument and the threads that differ. The job
ends with status 1.
"""

import numpy as np

import xupc


def main() -> None:
    """Add up arrays, which should have the same length on all threads."""
    with xupc.init():
        length = 990 if xupc.MYTHREAD == 1 else 1000
        mine = np.ones(length)
        total = np.empty_like(mine)
        xupc.allav_reduce_all(total, mine, xupc.ADD)


if __name__ == "__main__":
    main()
