"""Recorded calls of a job: the files that its threads write, their sum, and trace events.

Numbers, texts and files come in. No MPI and no plan does: `runtime/recorder.py` connects a job to
the files, and the command line reads them.
"""
