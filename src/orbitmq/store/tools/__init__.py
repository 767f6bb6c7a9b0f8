"""What looks at, checks and mends the files of a store that no broker has open."""
