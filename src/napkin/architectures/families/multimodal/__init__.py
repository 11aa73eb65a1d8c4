"""Language models that only exist with images or sound."""
