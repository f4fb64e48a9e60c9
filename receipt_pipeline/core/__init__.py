"""What is true: values in, values out; no clock, disk, network or framework."""
