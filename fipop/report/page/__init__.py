"""The page: the same views as the command line's, for a browser."""
