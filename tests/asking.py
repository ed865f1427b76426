"""Asks a run until it answers what a test waits for."""

from __future__ import annotations

from outlast.testing.progress import query_until

__all__ = ("PATIENCE", "query_until")

PATIENCE = 90
"""Seconds after which something that a test waits for will not come."""
