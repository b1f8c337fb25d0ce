"""Windows that slide over each channel by itself: depthwise convolutions and poolings."""
