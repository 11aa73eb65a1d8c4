"""Read launch files of training frameworks as napkin's options. No file is executed.

read.py is where reading begins: syntax.py parses a file into the keys of source.py, the format that recognizes them
(formats/, each declared by format.py) turns them into the options of reading.py, remaining.py says what becomes of the
other keys, and checks.py compares what was read.
shell/ and python/ follow scripts; hf/ and megatron/ have what several formats share.
"""
