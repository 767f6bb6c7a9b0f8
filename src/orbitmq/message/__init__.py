"""The message: as a producer gives it, as it is stored and sent, and the texts and numbers that belong to it."""
