"""The partitioned global address space: shared arrays, pointers to shared data, and the
heap that holds them. Offsets, affinities and memory segments come in. Teams, plans and messages do
not belong here."""
