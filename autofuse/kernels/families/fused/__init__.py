"""Several anchors in one kernel: blocks of rows, bands of feature maps."""
