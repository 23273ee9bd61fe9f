"""What several faults need: packet filters, programs, control groups, helper programs. Nothing here is a fault."""
