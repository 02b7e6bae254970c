"""Tables: arrays of numbers in k files, and tables with one row per object."""
