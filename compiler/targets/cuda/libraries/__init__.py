"""Work that NVIDIA's libraries do: matrix products, Fourier transforms, linear algebra."""
