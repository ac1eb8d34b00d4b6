"""Dynamic sizes, known when a program is called: expressions of named dimensions, and facts about them.

`expressions` has the sizes with Python's operators; below it are `terms`, their polynomials, `bounds`, intervals of
their values, `forms`, the canonical form of quotients and extrema, and `facts`, assumptions and inference; `text`
prints sizes and `reading` parses them. An integer is a size, too: code that computes with sizes handles both.
"""
