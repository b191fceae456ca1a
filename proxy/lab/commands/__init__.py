"""Commands of the lab, added by `proxy.cli`.

replay              `replay`
demo                `demo`
compact             `compact`
strategies          its option `--step`
tangents_command    its option `--tangents`
progress            the progress bar of long commands
"""
