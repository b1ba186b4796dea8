"""What each task of ours does, whichever operator it has."""
