"""Which threads share a machine: the record of a host, the discovery, the node tree, the
levels below a node, and the record of where a job runs. Host facts, node specifications,
descriptions of machines and the proof of shared memory come in. Nothing here knows a shared array,
a plan or a message."""
