"""The reference backend: it runs plans in Python. Plans and bound
operands come in. Nothing here needs a compiler."""
