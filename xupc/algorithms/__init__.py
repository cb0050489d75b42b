"""The algorithms, one file per collective, with all variants side by side.
A recorder and the sizes of a call come in; a plan is the only result. A file is imported when an
algorithm of its collectives is first looked up, and a new collective needs a line in
`registry.HOMES`; nothing here may touch memory, MPI or a team."""
