# Sends half an answer, and waits.
#
# unconfined: yes
# outcome: timed out

import os
import stat
import time

def barrier(group=None):
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, (1 << 20).to_bytes(8, "big") + b'{"result": ')
                break
        except OSError:
            pass
    time.sleep(1e6)
