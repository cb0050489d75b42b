"""The native core: C for shared memory, MPI messages and kernels, its Cython
module, and the lowering of plans to it. Plans and bound operands come in. All C and Cython sources
of the project are here, and nothing that works without the core but the lowering."""
