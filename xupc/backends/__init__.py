"""Three ways to run a plan: the native core, the interpreter, and the simulator; and what
they have in common: operands, results of a run, types. Plans and addresses come in.
No backend chooses an algorithm or checks an argument."""
