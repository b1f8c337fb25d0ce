"""Products and convolutions of 8-bit integers, summed in int32."""
