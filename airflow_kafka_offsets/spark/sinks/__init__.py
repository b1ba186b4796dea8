"""Where a window's records go, one module for each kind: a write that runs again replaces what it wrote before."""
