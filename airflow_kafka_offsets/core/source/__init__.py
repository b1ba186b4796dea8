"""Sources that hold offsets: import from them, export to them, compare them."""
