"""Products and convolutions of 8-bit integers, summed in int32, and of bfloat16, summed in float32."""
