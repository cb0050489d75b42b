"""All threads of a job in one process, without MPI: results, races,
deadlocks, and the time that a plan takes. Plans of all threads come in. Nothing here is loaded by
a running job."""
