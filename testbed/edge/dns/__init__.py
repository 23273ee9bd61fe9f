"""Real name servers for the campus edge: knot as the campus's authority, dnsmasq as the resolver of each provider."""
