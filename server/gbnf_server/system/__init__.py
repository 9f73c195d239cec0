"""What the operating system gives: folders, processes, files that only grow."""
