"""Programs to run: what you have written, put to use. All of it is given, none of it is graded."""
