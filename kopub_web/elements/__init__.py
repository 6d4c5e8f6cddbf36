"""Pages and regions as they are shown."""
