"""Speed, as a ratio against a peer measured in the same run: `make bench`, or `python -m benchmarks NAME ...`."""
