"""Which threads share a machine: the record of a host, the discovery with its proof,
and the node tree. Host facts and node specifications come in. Nothing here knows a shared array, a
plan or a message."""
