"""Rows of measured fine-tuning (schema finetune/1): rows.py reads one, each other module one subject of it."""
