"""How `make up` prepares and starts the site's processes. The embedded broker needs no Django."""
