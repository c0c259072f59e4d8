"""The handout and the staff guide, their figures and their numbers."""
