"""What programs are built with: the functions of the current program, their arguments, and variable scopes."""
