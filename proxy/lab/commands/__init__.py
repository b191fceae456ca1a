"""Commands of the lab, added by `proxy.cli`.

replay    `replay`
demo      `demo`
compact   `compact`
tangents  its options `--tangents` and `--drop`
"""
