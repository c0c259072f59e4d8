"""Who waits for whom: a deadlock or a mismatch is proven while it happens, and told as a story."""
