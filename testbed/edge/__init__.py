"""A campus with several Internet providers and the education network: ways to bring its users in by the near one."""
