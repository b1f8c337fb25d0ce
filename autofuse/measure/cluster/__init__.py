"""Building kernels in parallel, here or on a Dask cluster."""
