"""Three ways to run a plan: the native core, the interpreter, and the simulator.
Plans and bound operands come in. No backend chooses an algorithm or checks an argument."""
