"""Operations of reductions as kernels: those of numpy, functions of the user, and
what the native core is given for either. Data types, operations and functions come in. Nothing here
knows threads or messages."""
