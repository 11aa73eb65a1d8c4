"""TrainingArguments of Hugging Face's programs: names, blocks, precision, adapters, TRL's tasks, accelerate's line."""
