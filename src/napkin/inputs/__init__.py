"""What a user gives as files: model configs, hardware, launch files, profiles, logs, snapshots. Read, bounded, checked.

Begin with load.py, which reads any file, and model_file.py, which finds a model's config.json by a name or a path.
hardware.py, profile.py, log_file.py and snapshot.py are the others; launch/ reads other programs' files.
"""
