"""Laws are checked without a deadline: the machine may be busy."""

from hypothesis import settings

settings.register_profile("busy machine", deadline=None, max_examples=50)
settings.load_profile("busy machine")
