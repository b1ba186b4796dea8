"""What each task of this package does, with any operator."""
