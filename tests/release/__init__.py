"""`make dist`: what a release consists of, and whether it works where nothing of this repository is."""
