"""Building programs: the functions of the current program, their arguments, and variable scopes."""
