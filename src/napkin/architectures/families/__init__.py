"""The model types, one module for each family with its records, in folders for the reader."""
