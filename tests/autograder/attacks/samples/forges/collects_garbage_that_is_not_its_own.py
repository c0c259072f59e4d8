# Collects garbage that is not its own.
#
# unconfined: yes

import os, sys, time, signal
_right = barrier

def barrier(group=None):
    import gc
    for thing in gc.get_objects():
        if isinstance(thing, dict) and "entered" in thing:
            thing.clear()
    for thing in gc.get_objects():
        if isinstance(thing, list) and {type(x) for x in thing[:9]} == {float}:
            thing[:] = [0.0] * 9
