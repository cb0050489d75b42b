"""All threads of a job in one process, without MPI: results, races,
deadlocks, and the time that a plan takes. Plans of all threads come in. A running job
loads it only to prove variants of its program."""
