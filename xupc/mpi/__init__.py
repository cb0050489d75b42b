"""The drop-in communicator: programs written for mpi4py run on xupc without being rewritten.

Here are subclasses of mpi4py's communicators, the switch ``XUPC_COMM``, what replaces
``MPI.COMM_WORLD``, and ``python -m xupc.mpi``. They use calls of `api` and mpi4py itself. The
runtime's own communication does not belong here: that is in `comm`.
"""
