# Forks until it cannot, when it is imported.
#
# ci: yes

import os
import time

try:
    for _ in range(1000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
except OSError:
    pass
raise RuntimeError("forked")
