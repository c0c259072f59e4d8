# Raises and catches exceptions of its own.
#
# check: broadcast/from_rank_0, broadcast/layouts

import contextlib
import warnings

class Unlucky(ValueError):
    def __init__(self, why):
        super().__init__(why)
        self.why = why

_right = broadcast

def broadcast(tensor, src, group=None):
    with contextlib.suppress(Unlucky):
        raise Unlucky("as always")
    try:
        try:
            raise ExceptionGroup("several", [Unlucky("one"), KeyError("two")])
        except* Unlucky as caught:
            warnings.warn(str(caught), stacklevel=2)
    except* KeyError:
        pass
    _right(tensor, src, group)
