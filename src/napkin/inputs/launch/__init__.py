"""Read launch files of training frameworks as napkin's options. No file is executed."""
