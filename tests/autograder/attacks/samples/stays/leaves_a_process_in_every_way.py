# Leaves processes that have their own session, group and parent.
#
# outcome: crashed

import os
import signal
import time

def barrier(group=None):
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setpgid(0, 0)
                for number in range(1, 32):
                    try:
                        signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError):
                        pass
                os.closerange(0, 256)
                time.sleep(300)
            os._exit(0)
    os._exit(1)
