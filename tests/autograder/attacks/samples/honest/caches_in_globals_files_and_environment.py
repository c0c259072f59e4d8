# Caches in globals, files and environment.

import os, sys, time, signal
_right = barrier
_cache = {}
def barrier(group=None):
    import tempfile, functools, json, pathlib
    _cache.setdefault("calls", []).append(time.time())
    with tempfile.NamedTemporaryFile("w+") as file:
        json.dump(_cache, file)
        file.flush()
        assert json.loads(pathlib.Path(file.name).read_text())["calls"]
    os.environ["MY_CACHE"] = "warm"
    _right(group)
