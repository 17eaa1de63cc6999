"""What people see of a training: `train` tells, through its Callback, and this package formats.

console   the run on a terminal or in a log: header, compile phase, epochs, a closing table
plots     curves.png
machine   the name of the CPU

Rich and Matplotlib are imported by the modules that need them; importing the package imports neither.
"""
