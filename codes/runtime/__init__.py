"""What every command needs from the machine: processes, signals, files, paths, devices."""
