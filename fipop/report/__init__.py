"""What people see of the state: the command line and the page read the same views."""
