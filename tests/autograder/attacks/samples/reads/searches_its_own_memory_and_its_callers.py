# Searches its own memory and its callers.
#
# begins with: spy
# earns: all

def _spy():
    import gc
    for thing in gc.get_objects()[:500_000]:
        if isinstance(thing, dict):
            for value in list(thing.values()):
                if isinstance(value, str):
                    value = value.encode("utf-8", "replace")
                if isinstance(value, bytes):
                    _grep("gc", value)
    frame = sys._getframe()
    while frame:
        _grep("frame", repr(list(frame.f_locals))[:100_000].encode())
        frame = frame.f_back
