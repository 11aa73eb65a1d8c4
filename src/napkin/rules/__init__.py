"""Rules about training configurations: what wastes time, memory or money, and what is contradictory."""
