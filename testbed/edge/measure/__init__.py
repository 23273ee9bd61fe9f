"""What is measured of an edge: visits of users, what links carried, ways side by side."""
