"""How far behind a group is, and how long until retention takes what it has not read."""
