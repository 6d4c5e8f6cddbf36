"""Where the time of a run goes: what was observed, the arithmetic of it, and its picture."""
