"""What keeps a flood from one provider away from the web servers and from everybody else."""
