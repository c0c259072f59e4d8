# Replaces functions of its own, and decorates them.
#
# check: broadcast/from_rank_0, broadcast/layouts

import functools
import sys

def _counted(function):
    @functools.wraps(function)
    def wrapper(*arguments, **more):
        wrapper.calls += 1
        return function(*arguments, **more)
    wrapper.calls = 0
    return wrapper

_old = broadcast
broadcast = _counted(broadcast)
sys.modules[__name__].barrier = _counted(barrier)
exec("def _made_up(): return 1")
assert _made_up() == 1
