"""Where candidates are built and measured, with the sentinel that tells when the device has drifted."""
