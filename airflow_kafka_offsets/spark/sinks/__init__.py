"""The targets of a window's records, one module for each kind. A rerun of a write replaces its earlier output."""
