"""Operators: plan a window, launch Spark on it, commit it."""
