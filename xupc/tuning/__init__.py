"""Which algorithm a call gets and with which sizes: selection tables, their files, and
the probes at start. A place (threads, nodes, MPI family, transport) comes in. Nothing here runs a
collective."""
