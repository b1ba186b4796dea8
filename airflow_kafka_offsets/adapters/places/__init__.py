"""Places that hold offsets and are no offset store: a checkpoint, a CSV file."""
