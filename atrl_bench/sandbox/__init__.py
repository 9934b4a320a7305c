"""Runs Python programs that nobody has read: without network, without this machine's files, within limits (D14).

A program gets a file system of its own: the system's and Python's libraries read-only, one small writable folder in
memory, no `/proc`, no device but the null device and the like. It cannot see or signal other processes, has no
privileges, no environment but the one given here, and the kernel refuses it the calls that would lead further. What
comes back is one stream of limited size, so nothing it does ever writes to this machine's disk. Programs
run only after a probe has tried to get out and failed.

It holds against a program that a model wrote badly or with ill will. It shares the kernel with the machine, so a hole
in the kernel is a hole in it; on a machine that must not be lost, run the whole evaluation in a virtual machine.
"""
