"""Message filters of pulls: tags, SQL92 expressions, and precomputed bit maps."""
