"""Commands of the lab, one file each, added by `proxy.cli`. `tangents` and `progress` are parts of them."""
