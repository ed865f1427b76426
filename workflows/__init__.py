"""The orchestration of a run: a state machine without I/O, and the workflow that drives it on Temporal."""
