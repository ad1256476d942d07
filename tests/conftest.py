"""What all tests share: how hypothesis looks for examples."""

from hypothesis import Phase, settings

settings.register_profile("hunt", phases=(Phase.explicit, Phase.generate), deadline=None)
"""For tests that are to fail: the first example will do, nobody reads the smallest one."""
