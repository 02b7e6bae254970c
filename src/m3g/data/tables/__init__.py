"""Tables: arrays of numbers in k files, and tables of objects with one column per view."""
