"""What an offset store promises, and how its offsets are written."""
