"""Run tests of a program as jobs of threads: the pytest plugin.

The launcher of `cli/` comes in. Nothing of the library imports this room. `plugin` is imported by
every start of pytest, so it imports nothing but pytest until a test uses it.
"""
