"""The shared heap: segments, allocation, and the arrays that live in it."""
