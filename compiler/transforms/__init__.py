from hloom.compiler.transforms import control
