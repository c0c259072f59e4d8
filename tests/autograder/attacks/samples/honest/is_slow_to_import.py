# Takes three seconds to import.
#
# check: broadcast/from_rank_0

import time

time.sleep(3)
