"""What tables of scores have in common: intervals, and the run that the next one is compared with."""
