"""How well pages with known answers are read: benchmarks, scorers, and means that say how sure they are. Pure."""
