"""Code that is compiled once per release: the math library, the kernels that products and transforms share, the driver.

`archive` reads the file, `build` writes it. It is made with the wheel and by `pip install`; git does not have it.
"""
