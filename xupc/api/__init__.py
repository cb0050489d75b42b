"""What programs call, one module per family of calls, and the common path of a call.
Arguments come in as the program gave them and are checked here; teams, handles, init and finalize
are here too. No algorithm, no shared-memory protocol and no MPI call belongs here."""
