"""Sources that hold offsets but are not offset stores: a checkpoint, a CSV file."""
