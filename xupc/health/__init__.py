"""Failure detection, hang reports, and mismatch detection and recovery.
Wait states, control segments and call records come in. Nothing here moves the data of a call."""
