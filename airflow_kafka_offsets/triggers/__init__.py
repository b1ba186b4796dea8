"""Triggers: wait without holding a worker."""
