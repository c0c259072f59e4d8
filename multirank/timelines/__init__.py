"""Runs as pictures: who did what when, which message went where, and who waited for whom."""
