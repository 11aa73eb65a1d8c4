"""Rules about training configurations: what costs time, memory or money, and what contradicts itself."""
