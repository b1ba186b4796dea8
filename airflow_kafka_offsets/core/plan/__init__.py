"""Which offsets the next window, a replay or a reset gets."""
