# Returns at once, and lets a thread do the work.
#
# check: all_reduce/sum
# unconfined: yes

import threading
import time

_right = all_reduce

def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    def later():
        time.sleep(0.5)
        _right(tensor, op, group)
    threading.Thread(target=later, daemon=True).start()
