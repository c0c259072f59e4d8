# Shows its environment, its arguments and its callers.
#
# earns: all
# unconfined: yes
# ci: yes

import os
import sys
import traceback

_right = barrier

def barrier(group=None):
    print(dict(os.environ), sys.argv, sys.path, os.getcwd())
    traceback.print_stack()
    frame = sys._getframe(1)
    while frame:
        print(frame.f_code.co_filename, sorted(frame.f_locals), sorted(frame.f_globals)[:100])
        frame = frame.f_back
    _right(group)
