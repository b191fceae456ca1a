"""The tools and programs that agents call: a table of each, and the questions that the steps ask about a call.

Theory of operation:

    Bash {"command": "cd shop && sudo kubectl rollout undo deployment/checkout 2>&1 | tail -3"}
      1. (tool_call) a tool with a command is of the kind "run"
      2. (command_line) the commands in its line: cd shop, sudo kubectl rollout undo ..., tail -3
      3. (command_line) sudo only runs another one: kubectl rollout undo ...
      4. (program_table) the entry of each program, and the verb within its words: undo
      5. (file_uses) the call acts: it must not be made again only to see its output

Knowledge about other programs stands in tables only, each entry with examples that are its tests. The text of a
call is read up to a bound, and in time that is linear in it.

tool_call         a call as an agent makes it; the table of tools: their kinds, state and instructions
verbs             words in the names of tools, tasks and unknown programs that tell whether they act
command_line      command lines, read into simple commands; programs that run another command
programs          the form of an entry in the table of programs: its verbs, options and files
machine_programs  the table of programs: files, version control, requests, databases
service_programs  ... infrastructure, clouds, platforms
project_programs  ... tasks, packages, builds, tests, linters
program_table     all three
line_forms        forms of the lines in which programs tell how they ended
refused_calls     first words of a tool that could not do its work
requests          statements of SQL and requests of HTTP: whether they only look
file_uses         the files that a call reads or changes, which lines; whether it acts on the world
"""
