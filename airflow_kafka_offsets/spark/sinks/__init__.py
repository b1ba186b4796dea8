"""Where a window's records go, one module a kind: each write can be done again, and is then there once."""
