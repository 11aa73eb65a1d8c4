"""What a person sees of an answer: the question, the answer in one line, one table, remarks, the next command."""
