"""Plans and recorded programs as files of other tools: simulators of networks, trace viewers.

Plans, trees and recorded calls come in. They become a graph of operations; there is a module for
each format of file. No MPI comes in, and nothing is run.
"""
