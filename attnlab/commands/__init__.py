"""What each verb of the command line does, and how it prints."""
