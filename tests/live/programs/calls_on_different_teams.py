"""Thread 1 makes a call on another team than the others: all wait in a circle. No arguments."""

from __future__ import annotations

import xupc

team = xupc.init()
other = team.split(0)
A = xupc.all_alloc(64 * team.size, "u1", 64)
B = xupc.all_alloc(64 * team.size, "u1", 64)
xupc.all_broadcast(B, A, 8, team=other if team.rank == 1 else team)
