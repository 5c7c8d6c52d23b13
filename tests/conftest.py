"""What holds for all tests."""

from hypothesis import settings

# How long an example takes says more about the machine than about the code; a test as a whole has its time limit.
settings.register_profile("naiad", deadline=None)
settings.load_profile("naiad")
