"""From the section ``edge`` to nodes, links, routes and addresses. Pure."""
