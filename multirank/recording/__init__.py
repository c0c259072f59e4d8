"""What happens inside a rank: every operation is recorded, with the caller's own line."""
