"""Measures outlast against a hand-written Temporal workflow: `make bench`."""
