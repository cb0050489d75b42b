"""Which threads share a machine: the record of a host, the discovery with its proof,
the node tree, and the levels below a node. Host facts, node specifications and descriptions of
machines come in. Nothing here knows a shared array, a plan or a message."""
