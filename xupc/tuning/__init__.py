"""Which algorithm a call gets and with which sizes: selection tables, their files, the figures of
hosts, and the check at start. A place (threads, nodes, MPI family, transport) and a host come in.
Nothing here runs a collective."""
