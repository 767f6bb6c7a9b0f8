"""Connected producers and consumers, their subscriptions, and their queue locks."""
