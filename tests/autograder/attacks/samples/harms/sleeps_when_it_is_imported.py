# Sleeps when it is imported.
#
# unconfined: yes

import time
time.sleep(1e6)
