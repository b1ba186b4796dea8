"""Offset stores: one technology a module, and its client library imported there only."""
