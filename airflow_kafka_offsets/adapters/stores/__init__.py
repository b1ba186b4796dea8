"""Offset stores: one module for each technology. Only that module imports the client library."""
