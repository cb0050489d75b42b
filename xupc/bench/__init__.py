"""Measuring collectives: what is measured, on every thread, and what comes of it."""
