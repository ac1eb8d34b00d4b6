"""Sizes that are known when a program is called: expressions of named dimensions, and what holds for them.

`expressions` has the sizes with Python's operators; below it `terms` are the polynomials that they are, `bounds` the
intervals of their values, `forms` the canonical form of quotients and extrema, `facts` what is assumed and what follows
from it; `text` writes sizes and `reading` reads them. An integer is a size, too: code that computes with sizes serves
both.
"""
