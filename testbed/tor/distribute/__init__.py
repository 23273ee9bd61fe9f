"""The distributor: puts the descriptors of several instances of one onion service on its HSDirs, as evenly as possible.

    plan         which instance goes on which HSDir; pure
    certificate, layers, document    reading descriptors and making new ones from them; pure
    settings, counters, journal      what it is told, what it remembers, what it says
    endpoint, instance, agent        the tors that it talks to
    engine       all of it together

It needs the control ports of the instances and of any tor that uploads, and the service's key; nothing of a lab. So it
runs on any tor network (``testbed distributor``), and a lab runs it as one of its programs.
"""
