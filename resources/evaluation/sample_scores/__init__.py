"""The scores of one sample, by what is known of it. Pure but for the processes of the tools."""
