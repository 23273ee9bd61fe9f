"""Pools in virtual time, and what a course of migrations comes to."""
