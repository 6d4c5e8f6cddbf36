"""What is kept beside the tables: of what was computed, of runs and of engines."""
