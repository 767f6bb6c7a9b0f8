"""The broker: takes messages in, gives them out, and keeps what it knows of topics, groups and their progress."""
