"""What people ask about jobs, answered once: the command line, its JSON and the admin print what stands here.

Every query is bounded: it is served by an index, or walks so many rows and says where it stopped.
"""
