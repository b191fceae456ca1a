"""What a tool or a program is: one table of each, and the questions that the steps ask of a call.

Theory of operation:

    Bash {"command": "cd shop && sudo kubectl rollout undo deployment/checkout 2>&1 | tail -3"}
      1. (tool_kinds) a tool with a command is of the kind "run"
      2. (command_line) the commands in its line: cd shop, kubectl rollout undo ..., tail -3
      3. (programs) the entry of each program
      4. (effects) the call acts: it must not be made again only to see its output

Knowledge about other programs stands in `tool_kinds` and `programs` only, an entry each, with an example that is its
test. The text of a call is read up to a bound, and in time that is linear in it.

tool_call     a call as an agent makes it, and the values of its arguments
tool_kinds    the table of tools: their kinds, by the names of tool and arguments; state and instructions
command_line  command lines, read into simple commands
programs      the table of programs: what each does, and how it says that it ended
effects       whether a call acts on the world, only reads, or explains its exit code
file_uses     the files that a call reads or changes
"""
