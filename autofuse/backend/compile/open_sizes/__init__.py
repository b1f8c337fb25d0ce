"""Programs with open sizes: their kernels put together, of rows and of images."""
