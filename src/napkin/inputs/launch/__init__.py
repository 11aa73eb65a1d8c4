"""Launch files of training frameworks, read as napkin's options. Nothing of a file is ever run."""
