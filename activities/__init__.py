"""The side effects of a run: one model request, one tool call. Plain functions first, then their Temporal wrapping."""
