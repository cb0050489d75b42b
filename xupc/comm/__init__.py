"""The only MPI: contexts and communicators, the messages of plans, and the collective
agreements of set-up. Plans, addresses and small Python objects come in. No other room imports
mpi4py, apart from the tools that are measured against it."""
