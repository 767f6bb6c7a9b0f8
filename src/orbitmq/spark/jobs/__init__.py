"""Ready jobs on topics, each one command of `orbitmq spark`. They take values and give values; who prints them is somebody else."""
