"""Environments in C for puffer. Names: ``ocean/breakout``, ``breakout`` and ``puffer_breakout`` are the same one."""
