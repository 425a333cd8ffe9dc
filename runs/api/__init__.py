"""The API at /api/: what pages show, and what their forms do, for programs. It computes nothing that a page computes, too."""
